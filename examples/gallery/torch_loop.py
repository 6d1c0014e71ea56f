"""Torch loop: fresh synthetic rows in every batch

A training loop of one's own, in plain PyTorch. `ECRTAugmenter` learns the de-mixing once, and adds synthetic features
of rare classes to every batch, other ones each time. It gives features, labels and weights; the loss is a weighted
sum. Two lines of the loop change.

The network is trained three times with other first weights, with and without the augmenter. Without it, the same
class weights are used, so that the difference is due to the synthetic rows alone. Digits 5 to 9 have 10 training
images each.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from ecrt import ECRTAugmenter
from ecrt.data import imbalanced_digits

data = imbalanced_digits(n_minority=10, seed=0)
x, y = torch.tensor(data.X_train / 16, dtype=torch.float32), torch.tensor(data.y_train)
x_test, y_test = torch.tensor(data.X_test / 16, dtype=torch.float32), torch.tensor(data.y_test)
rare, frequency = y_test >= 5, torch.bincount(y) / len(y)


def train(augmenter, seed, epochs=30):
    """The accuracy on rare digits after every epoch."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3)
    accuracies = []
    for _ in range(epochs):
        for batch, labels in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
            if augmenter is None:
                features, targets, weights = batch, labels, 1 / (len(batch) * 10 * frequency[labels])
            else:
                features, targets, weights = augmenter(batch, labels)
            loss = (weights * nn.functional.cross_entropy(network(features), targets, reduction="none")).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracies.append((network(x_test).argmax(1) == y_test)[rare].float().mean().item())
    return accuracies


figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
augmenter = ECRTAugmenter(balanced=True, random_state=0).fit(x, y)
for name, used in {"class weights alone": None, "with synthetic rows": augmenter}.items():
    curves = np.array([train(used, seed) for seed in range(3)])
    runs = ", ".join(f"{last:.3f}" for last in curves[:, -1])
    print(f"{name}: accuracy on rare digits {curves[:, -1].mean():.3f} (runs {runs})")
    (line,) = axes.plot(range(1, 31), curves.mean(axis=0), label=name)
    axes.fill_between(range(1, 31), curves.min(axis=0), curves.max(axis=0), alpha=0.2, color=line.get_color())
axes.set(xlabel="epoch", ylabel="accuracy on rare digits")
axes.legend()
figure.savefig("torch_loop.png", dpi=90, metadata={"Description": "Accuracy on rare digits after each epoch"})
