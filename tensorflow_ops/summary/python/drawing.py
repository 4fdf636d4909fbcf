"""Draws pictures with labels, boxes and coloured frames, with Pillow."""

import io
import threading

import numpy as np

GREEN, RED, BLACK, BLUE = (0, 140, 40), (210, 0, 0), (0, 0, 0), (0, 70, 220)
_FONT_SIZE = 14  # pixels
_MIN_WIDTH = 160  # pixels; smaller images are enlarged, by whole factors
_FRAME = 3  # pixels around the image, in the colour for a correct or wrong prediction

_fonts = threading.local()  # threads must not share FreeType objects


def _font():
    from PIL import ImageFont

    if not hasattr(_fonts, "font"):
        _fonts.font = ImageFont.load_default(_FONT_SIZE)
    return _fonts.font


def to_rgb(image):
    """Converts [H, W, 1, 3 or 4], uint8 or float in [0, 1], to uint8 [H, W, 3], on a white background."""
    if image.dtype != np.uint8:
        image = np.nan_to_num(image.astype(np.float32), nan=0.0, posinf=1.0, neginf=0.0)
        image = np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)
    if image.shape[-1] == 1:
        return np.repeat(image, 3, axis=-1)
    if image.shape[-1] == 4:
        alpha = image[..., 3:].astype(np.float32) / 255
        return np.round(image[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return image


def _truncate(draw, text, font, width):
    """Returns the text, or its longest start that fits the width."""
    text = " ".join(text.split())
    if draw.textlength(text, font) <= width:
        return text
    while text and draw.textlength(text + "...", font) > width:
        text = text[:-1]
    return text + "..."


def picture(image, lines, frame, boxes=()):
    """Draws an image with a frame, boxes on it and lines of text under it.

    Args:
      image: [H, W, 1, 3 or 4], uint8 or float in [0, 1].
      lines: [(text, colour)].
      frame: colour.
      boxes: [((x1, y1, x2, y2) in pixels of the image, text)]; boxes without area, or
        with NaN or infinity, are skipped.

    Returns:
      A Pillow image, RGB. Its size depends on the image's size and the number of lines.
    """
    from PIL import Image, ImageDraw

    rgb = to_rgb(image)
    height, width = rgb.shape[:2]
    scale = max(1, -(-_MIN_WIDTH // max(1, width)))
    font = _font()
    line_height = _FONT_SIZE + 5
    size = (max(_MIN_WIDTH, width * scale) + 2 * _FRAME, height * scale + 2 * _FRAME + line_height * len(lines) + 2)
    result = Image.new("RGB", size, (255, 255, 255))
    draw = ImageDraw.Draw(result)
    bottom = height * scale + 2 * _FRAME
    draw.rectangle((0, 0, width * scale + 2 * _FRAME - 1, bottom - 1), fill=frame)
    if rgb.size:
        result.paste(Image.fromarray(np.ascontiguousarray(rgb.repeat(scale, 0).repeat(scale, 1))), (_FRAME, _FRAME))
    for box, text in boxes:
        box = np.asarray(box, np.float64)
        if not np.isfinite(box).all() or box[2] <= box[0] or box[3] <= box[1]:
            continue
        last = (width * scale - 1, height * scale - 1) * 2
        x1, y1, x2, y2 = (int(v) + _FRAME for v in np.clip(np.round(box * scale), 0, last))
        draw.rectangle((x1, y1, x2, y2), outline=BLUE, width=2)
        if text:
            text = _truncate(draw, text, font, width * scale + _FRAME - x1)
            draw.rectangle((x1, y1, x1 + draw.textlength(text, font) + 3, y1 + line_height - 2), fill=BLUE)
            draw.text((x1 + 2, y1), text, (255, 255, 255), font)
    for i, (text, colour) in enumerate(lines):
        text = _truncate(draw, text, font, size[0] - 4)
        draw.text((2, bottom + 1 + i * line_height), text, colour, font)
    return result


def png(image):
    """Returns a Pillow image as the bytes of a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
