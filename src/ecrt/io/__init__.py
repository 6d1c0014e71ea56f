"""Models on disk: safetensors and JSON in a folder, read with suspicion and without pickle."""
