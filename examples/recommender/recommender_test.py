"""Tests of the example's data, network and recommendations."""

import data
import keras
import model
import numpy as np
import recommend


def test_clicks():
    world = data.create_world(0)
    clicks, same, other = (data.draw_clicks(world, [4, 5000], seed) for seed in (1, 1, 2))
    assert clicks.inputs["words"].shape == (4, 5000, data.TYPED)
    assert clicks.clicked.shape == clicks.inputs["film"].shape == (4, 5000, 1)
    for key, names in clicks.inputs.items():
        np.testing.assert_array_equal(names, same.inputs[key])
        assert (names != other.inputs[key]).any()
        # The second name is half as frequent as the first, to the power of STEEPNESS.
        first, second = ((names == name).sum() for name in world.names[key][:2])
        np.testing.assert_allclose(second / first, 0.5**data.STEEPNESS, rtol=0.1)
    # Films are clicked on as often as their probabilities say.
    likely = clicks.probabilities > 0.5
    for part in likely, ~likely:
        np.testing.assert_allclose(clicks.clicked[part].mean(), clicks.probabilities[part].mean(), atol=0.02)


def test_names_of_films_and_words_show_their_genres():
    world = data.create_world(0)
    film, word = world.names["film"][5], world.names["words"][7]
    assert film == f"{list(data.GENRES)[world.genres['film'][5]]}5"
    assert word == f"{list(data.GENRES.values())[world.genres['words'][7]]}7"


def test_a_loaded_network_recommends_the_same_films(tmp_path, monkeypatch):
    keras.utils.set_random_seed(0)
    monkeypatch.setattr(model, "ROWS", 1000)
    network, films = model.build(), data.create_world(0).names["film"][:50]
    network.set_weights([5 * weight for weight in network.get_weights()])  # so that chances differ
    network.save(tmp_path / "network.keras")
    lines = recommend.recommend(network, films, "user3", ["ghost1", "ghost2", "a word it never saw"])
    loaded = keras.saving.load_model(tmp_path / "network.keras")
    assert lines == recommend.recommend(loaded, films, "user3", ["ghost1", "ghost2", "a word it never saw"])
    chances = [float(line.split()[0]) for line in lines]
    assert chances == sorted(chances, reverse=True) and chances[0] > chances[-1]
    assert {line.split()[1] for line in lines} <= set(films)
