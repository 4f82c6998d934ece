"""Small networks of the kinds that people train."""

from __future__ import annotations

from torch import nn


class ConvNet(nn.Module):
    """A stem, a list of blocks with batch norm, and a head."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)) for _ in range(2)])
        self.norm = nn.LayerNorm(8)
        self.fc = nn.Linear(8, classes)

    def forward(self, images):
        features = self.stem(images)
        for block in self.blocks:
            features = features + block(features).relu()
        return self.fc(self.norm(features.mean((2, 3))))


class TokenNet(nn.Module):
    """An embedding, a transformer encoder and a head; no buffers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 20)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens)))


class Detector(nn.Module):
    """A backbone with a region proposal and two heads, both as wide as the number of classes says."""

    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 16, 3))
        self.rpn = nn.Conv2d(16, 4, 1)
        self.cls_score = nn.Linear(16, classes + 1)
        self.bbox_pred = nn.Linear(16, 4 * (classes + 1))


class Normed(nn.Module):
    """A convolution, a norm of any kind, and another convolution."""

    def __init__(self, norm):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.norm = norm
        self.last = nn.Conv2d(4, 4, 1)

    def forward(self, images):
        return self.last(self.norm(self.first(images)))
