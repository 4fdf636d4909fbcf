"""Draws a record: its weather, the probability of each season, and what the models say."""

from collections.abc import Mapping

import data
import numpy as np
from matplotlib.figure import Figure

COLORS = np.array(["#3b6fb6", "#6cbf4b", "#f2b632", "#b5502b"])  # of the seasons


def draw(records: data.Records, i: int, marginals: np.ndarray, tags: Mapping[str, np.ndarray]) -> Figure:
    """Draws record i, the marginals [N, T, seasons] of its days, and a strip for each of the tags [N, T]."""
    days = np.arange(records.lengths[i])
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    weather, chances, strips = figure.subplots(3, sharex=True, height_ratios=[1.2, 1.6, 0.36 * len(tags)])

    weather.scatter(days, records.weather[i, days], c=COLORS[records.seasons[i, days]], s=14)
    weather.set_yticks(range(1, 1 + len(data.WEATHERS)), data.WEATHERS)
    weather.set_title("the weather, in the color of the true season", loc="left")

    chances.stackplot(days + 0.5, marginals[i, days].T, colors=COLORS, labels=data.SEASONS, step="mid")
    chances.set(ylim=(0, 1), yticks=[0, 0.5, 1])
    chances.set_title("crf.marginals: the probability of each season", loc="left")
    chances.legend(ncols=len(data.SEASONS), loc="lower right", bbox_to_anchor=(1, 1), frameon=False)

    for row, found in enumerate(tags.values()):
        strips.bar(days + 0.5, 0.8, width=1, bottom=row - 0.4, color=COLORS[found[i, days]])
    strips.set_yticks(range(len(tags)), tags)
    strips.invert_yaxis()
    strips.set(xlabel="day", xlim=(0, len(days)))
    for axes in (weather, chances, strips):
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure
