"""Fresh synthetic features of rare classes in a plain PyTorch loop. Run it with ``python examples/torch_loop.py``."""

import torch
from sklearn.metrics import balanced_accuracy_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ecrt import ECRTAugmenter
from ecrt.data import imbalanced_digits


def main(epochs: int = 20) -> float:
    """Train a small network; gives the balanced accuracy on test rows."""
    data = imbalanced_digits(n_minority=10, seed=0)
    x, y = torch.tensor(data.X_train / 16, dtype=torch.float32), torch.tensor(data.y_train)
    torch.manual_seed(0)
    augmenter = ECRTAugmenter(balanced=True).fit(x, y)  # de-mixing is learned once
    head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch, labels in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
            features, targets, weights = augmenter(batch, labels)
            loss = (weights * nn.functional.cross_entropy(head(features), targets, reduction="none")).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        found = head(torch.tensor(data.X_test / 16, dtype=torch.float32)).argmax(1)
    accuracy = float(balanced_accuracy_score(data.y_test, found))
    print(f"balanced accuracy on test rows: {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
