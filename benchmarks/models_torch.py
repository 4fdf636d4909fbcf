"""The models of models.py in PyTorch. `MODELS` has, by name, functions of a Network.

Each returns a function that makes a module, the arguments of its call, and a function of its result to the loss.
"""

import functools

import models_keras as sizes
import peers
import torch
from torch import nn

peers.torchvision()  # before others import it


def _reader(features):
    return nn.LSTM(features, 128, 2, batch_first=True, bidirectional=True)


def _blocks(norm_first):
    layer = functools.partial(nn.TransformerEncoderLayer, sizes.UNITS, sizes.HEADS, 4 * sizes.UNITS, 0.1, "gelu")
    blocks = nn.TransformerEncoder(layer(batch_first=True, norm_first=norm_first), sizes.BLOCKS,
                                   nn.LayerNorm(sizes.UNITS) if norm_first else None, not norm_first)  # fmt: skip
    for block in blocks.layers:
        block.dropout = nn.Identity()  # Keras's have none between the dense layers
    return blocks


class _GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(sizes.VOCABULARY, sizes.UNITS)
        self.positions = nn.Embedding(sizes.LENGTH, sizes.UNITS)
        self.dropout, self.blocks = nn.Dropout(0.1), _blocks(norm_first=True)
        for block in self.blocks.layers:
            block.self_attn.dropout = 0.0
        self.head = nn.Linear(sizes.UNITS, sizes.VOCABULARY)
        self.mask = nn.Transformer.generate_square_subsequent_mask(sizes.LENGTH)

    def forward(self, tokens):
        h = self.dropout(self.tokens(tokens) + self.positions.weight)
        return self.head(self.blocks(h, self.mask, is_causal=True))


class _BERT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(30_522, sizes.UNITS)
        self.positions, self.segments = nn.Embedding(512, sizes.UNITS), nn.Embedding(2, sizes.UNITS)
        self.norm, self.dropout, self.blocks = nn.LayerNorm(sizes.UNITS), nn.Dropout(0.1), _blocks(norm_first=False)
        self.pooled, self.head = nn.Linear(sizes.UNITS, sizes.UNITS), nn.Linear(sizes.UNITS, 2)

    def forward(self, tokens, mask, segments):
        h = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]] + self.segments(segments)
        h = self.blocks(self.dropout(self.norm(h)), src_key_padding_mask=~mask)
        return self.head(self.dropout(torch.tanh(self.pooled(h[:, 0]))))


class _Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.reader = nn.Embedding(sizes.WORDS, 128, padding_idx=0), _reader(128)
        self.head = nn.Linear(256, sizes.TAGS)

    def forward(self, words, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.words(words), lengths, True, False)
        return self.head(nn.utils.rnn.pad_packed_sequence(self.reader(packed)[0], True, total_length=words.shape[1])[0])


class _CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        stages, channels = [], 1
        for filters, pool in ((64, (2, 2)), (128, (2, 2)), (256, (2, 1)), (256, (2, 1))):
            stages += [nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()]
            stages += [nn.MaxPool2d(pool)]
            channels = filters
        self.stages, self.reader, self.head = nn.Sequential(*stages), _reader(512), nn.Linear(256, sizes.CHARACTERS)

    def forward(self, images):
        return self.head(self.reader(self.stages(images).permute(0, 3, 2, 1).flatten(2))[0])


class _Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(sizes.ROWS, sizes.WIDTH) for _ in range(sizes.TABLES))
        dense = nn.Linear(sizes.TABLES * sizes.WIDTH + 13, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()
        self.dense = nn.Sequential(*dense, nn.Linear(128, 1))

    def forward(self, *inputs):
        *ids, numbers = inputs
        return self.dense(torch.cat([*(table(i) for table, i in zip(self.tables, ids, strict=True)), numbers], -1))


class _Detector(nn.Module):
    def __init__(self, model, targets):
        super().__init__()
        self.model, self.targets = model, targets

    def forward(self, images):
        return self.model(images, labels=self.targets if self.training else None)


def _images(array):
    return torch.from_numpy(array).permute(0, 3, 1, 2)  # is channels_last in memory


def _crossentropy(y, **options):
    y = torch.from_numpy(y)
    return lambda logits: nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten(), **options)


def _of_images(kind, network):
    from torchvision import models

    make = functools.partial(getattr(models, kind), num_classes=sizes.CLASSES)
    return make, (_images(network.x),), _crossentropy(network.y)


def _gpt(network):
    return _GPT, (torch.from_numpy(network.x),), _crossentropy(network.y)


def _bert(network):
    x = (network.x[key] for key in ("token_ids", "padding_mask", "segment_ids"))
    return _BERT, tuple(map(torch.from_numpy, x)), _crossentropy(network.y)


def _tagger(network):
    words = torch.from_numpy(network.x)
    targets = network.y.copy()
    targets[network.x == 0] = -1
    return _Tagger, (words, (words > 0).sum(1)), _crossentropy(targets, ignore_index=-1)


def _crnn(network):
    labels, steps = torch.from_numpy(network.y), network.x.shape[2] // 4
    lengths = [torch.full([len(labels)], n) for n in (steps, labels.shape[1])]

    def loss(logits):
        return nn.functional.ctc_loss(logits.log_softmax(-1).transpose(0, 1), labels, *lengths)

    return _CRNN, (_images(network.x),), loss


def _recommender(network):
    x, y = tuple(map(torch.from_numpy, network.x)), torch.from_numpy(network.y)
    return _Recommender, x, lambda logits: nn.functional.binary_cross_entropy_with_logits(logits, y)


def _d_fine(network):
    from transformers import DFineConfig, DFineForObjectDetection, HGNetV2Config

    backbone = HGNetV2Config(
        embedding_size=16, depths=[1, 1, 2, 1], hidden_sizes=[64, 256, 512, 1024], stem_channels=[3, 16, 16],
        stage_in_channels=[16, 64, 256, 512], stage_mid_channels=[16, 32, 64, 128],
        stage_out_channels=[64, 256, 512, 1024], stage_num_blocks=[1, 1, 2, 1], stage_numb_of_layers=[3] * 4,
        stage_kernel_size=[3, 3, 5, 5], use_learnable_affine_block=True, out_indices=[3, 4],
    )  # fmt: skip
    config = DFineConfig(
        backbone_config=backbone, num_labels=sizes.OBJECTS, num_denoising=0, freeze_backbone_batch_norms=False,
        encoder_hidden_dim=128, encoder_in_channels=[512, 1024], feat_strides=[16, 32], encoder_ffn_dim=512,
        encode_proj_layers=[1], hidden_expansion=0.34, depth_mult=0.5, d_model=128, decoder_in_channels=[128, 128],
        decoder_ffn_dim=512, num_feature_levels=2, decoder_n_points=[6, 6], decoder_layers=3,
        anchor_image_size=[256, 256],
    )  # fmt: skip
    boxes, labels = map(torch.from_numpy, (network.y["boxes"], network.y["labels"]))
    targets = [{"boxes": b, "class_labels": i} for b, i in zip(boxes, labels, strict=True)]
    make = functools.partial(DFineForObjectDetection, config)
    return lambda: _Detector(make(), targets), (_images(network.x),), lambda result: result.loss


MODELS = {
    "ResNet50": functools.partial(_of_images, "resnet50"),
    "MobileNetV2": functools.partial(_of_images, "mobilenet_v2"),
    "EfficientNetB0": functools.partial(_of_images, "efficientnet_b0"),
    "ConvNeXt-T": functools.partial(_of_images, "convnext_tiny"),
    "GPT": _gpt,
    "BERT": _bert,
    "LSTM tagger": _tagger,
    "CRNN": _crnn,
    "recommender": _recommender,
    "D-FINE": _d_fine,
}
