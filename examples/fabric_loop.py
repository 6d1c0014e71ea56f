"""The same loop under Lightning Fabric (the extra ``distributed``): ``python examples/fabric_loop.py``."""

import torch
from lightning_fabric import Fabric
from sklearn.metrics import balanced_accuracy_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ecrt import ECRTAugmenter
from ecrt.data import imbalanced_digits


def main(epochs: int = 20) -> float:
    """Train a small network on one process; gives the balanced accuracy on test rows."""
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    data = imbalanced_digits(n_minority=10, seed=0)
    x, y = torch.tensor(data.X_train / 16, dtype=torch.float32), torch.tensor(data.y_train)
    augmenter = ECRTAugmenter(balanced=True, random_state=fabric.global_rank).fit(x, y)  # other draws on every rank
    head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    head, optimizer = fabric.setup(head, torch.optim.AdamW(head.parameters(), lr=3e-3))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True))
    for _ in range(epochs):
        for batch, labels in loader:
            features, targets, weights = augmenter(batch, labels)
            optimizer.zero_grad()
            fabric.backward((weights * nn.functional.cross_entropy(head(features), targets, reduction="none")).sum())
            optimizer.step()
    with torch.no_grad():
        found = head(torch.tensor(data.X_test / 16, dtype=torch.float32)).argmax(1)
    accuracy = float(balanced_accuracy_score(data.y_test, found))
    print(f"balanced accuracy on test rows: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
