"""Tests of the image classifier: `python -m pytest examples/image_classifier`, with tensorflow_ops installed."""

import multiprocessing
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import time

import checkpoints
import data
import keras
import metrics
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parent
SHORT = ("--steps=60", "--every=10", "--batch_size=16", "--patience=100")
STEPS = 60


# Commands are forks of a process that has imported TensorFlow, which takes longer than most of them do.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tensorflow", "tensorflow_ops"])


def run_main(output, arguments):
    """Runs main.py in this process, with its output in a file."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.argv = ["main.py", *arguments]
    runpy.run_path(str(FOLDER / "main.py"), run_name="__main__")


def start(run, *words):
    """Starts a command; returns its process, and the file of its output."""
    output = run.with_name(f"{run.name}.log")
    process = PROCESSES.Process(target=run_main, args=(output, [*words, f"--run={run}"]))
    process.start()
    return process, output


def end(process, output):
    """Returns the exit status and the output of a command."""
    process.join()
    return process.exitcode, output.read_text()


def call(run, *words):
    """Runs a command and returns its output."""
    status, printed = end(*start(run, *words))
    assert status == 0, printed
    return printed


def train_until(run, step, number):
    """Trains until a step is reported, then sends a signal. Returns the exit status and the output."""
    process, output = start(run, "train", *SHORT)
    while process.is_alive() and not (output.exists() and f"step {step:5}" in output.read_text()):
        time.sleep(0.01)
    os.kill(process.pid, number)
    return end(process, output)


def saved(run, kind="latest"):
    """Returns the values of all variables in a run's last checkpoint."""
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(run / kind))
    names = [name for name in reader.get_variable_to_shape_map() if name.endswith("VARIABLE_VALUE")]
    names.remove("save_counter/.ATTRIBUTES/VARIABLE_VALUE")  # number of saves: Ctrl-C adds one
    return {name: reader.get_tensor(name) for name in names}


def assert_same_bits(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.tobytes() == second[name].tobytes(), name


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Returns the folder of an uninterrupted run."""
    run = tmp_path_factory.mktemp("finished")
    call(run, "train", *SHORT)
    return run


def test_killed_and_interrupted_run_ends_with_the_same_bits(finished, tmp_path):
    assert train_until(tmp_path, 20, signal.SIGKILL)[0] == -signal.SIGKILL
    killed_at = int(saved(tmp_path)["step/.ATTRIBUTES/VARIABLE_VALUE"])
    assert 20 <= killed_at < STEPS
    status, errors = train_until(tmp_path, killed_at + 20, signal.SIGINT)
    assert status == 1 and "stopped; the same command resumes" in errors
    assert killed_at + 20 <= saved(tmp_path)["step/.ATTRIBUTES/VARIABLE_VALUE"] < STEPS
    assert f"resuming at step {saved(tmp_path)['step/.ATTRIBUTES/VARIABLE_VALUE']}" in call(tmp_path, "train", *SHORT)
    values = saved(finished)
    # Weights, two slots each, the optimizer's counter and learning rate, and the run's four variables.
    assert len(values) > 3 * 14 and values["step/.ATTRIBUTES/VARIABLE_VALUE"] == STEPS
    assert_same_bits(values, saved(tmp_path))
    assert_same_bits(saved(finished, "best"), saved(tmp_path, "best"))


def test_tensorboard_gets_curves_and_pictures(finished):
    pictures, losses = set(), {}
    for path in (finished / "events").iterdir():
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "images" and event.step == STEPS:
                    pictures.add((value.tag, len(value.tensor.string_val)))
                elif value.tag == "validation/loss":
                    losses[event.step] = float(tf.make_ndarray(value.tensor))
    # Width, height, then a PNG per picture.
    assert pictures == {("validation/confusion", 3), ("validation/hardest", 2 + 12)}
    assert list(losses) == list(range(10, STEPS + 1, 10))
    assert min(losses.values()) == saved(finished)["best_loss/.ATTRIBUTES/VARIABLE_VALUE"]


def test_finished_run_is_judged_but_not_trained_further(finished):
    before = saved(finished)
    assert f"resuming at step {STEPS}" in call(finished, "train", *SHORT)
    assert_same_bits(before, saved(finished))
    status, printed = end(*start(finished, "evaluate", "--at_least=1.01"))
    assert status == 1 and "below --at_least 1.01" in printed


# Serves a SavedModel without the example's modules.
LOADER = """
import sys, numpy as np, tensorflow as tf, tensorflow_ops
result = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](images=tf.constant(np.load(sys.argv[2])))
print(result["class"].numpy()[0].decode(), result["probabilities"].numpy().max())
"""


def test_export_predicts_in_a_new_process_as_evaluate_measures(finished, tmp_path):
    accuracy = call(finished, "evaluate").strip().rpartition("accuracy ")[2]
    call(finished, "export")
    assert call(finished, "predict").strip().rpartition("accuracy ")[2] == accuracy

    held_out = data.load().held_out
    # `predict` must rescale and invert this picture, which is four times as large and dark on light.
    picture = 255 - np.kron(held_out.images[0, :, :, 0], np.ones([4, 4], np.uint8))
    Image.fromarray(picture).save(tmp_path / "digit.png")
    printed = call(finished, "predict", str(tmp_path / "digit.png"), "--invert")
    np.save(tmp_path / "digit.npy", held_out.images[:1])
    arguments = [sys.executable, "-c", LOADER, str(finished / "saved_model"), str(tmp_path / "digit.npy")]
    alone = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    assert f": {alone[0]}, probability {float(alone[1]):.3f}" in printed


def test_two_devices_train_like_one(tmp_path):
    # Batches of 15 split unevenly. No dropout, because its noise differs when a batch is split.
    flags = ("--steps=10", "--every=5", "--batch_size=15", "--dropout=0")
    call(tmp_path / "one", "train", *flags)
    one = saved(tmp_path / "one")
    weights = [name for name in one if name.startswith("weights")]
    assert len(weights) == 14
    loss = "best_loss/.ATTRIBUTES/VARIABLE_VALUE"
    for mode in ("make_parallel", "mirrored"):
        call(tmp_path / mode, "train", f"--parallel={mode}", "--devices=2", *flags)
        two = saved(tmp_path / mode)
        assert one.keys() == two.keys()
        for name in weights:
            np.testing.assert_allclose(two[name], one[name], atol=1e-3, err_msg=f"{mode}: {name}")
        np.testing.assert_allclose(two[loss], one[loss], rtol=1e-3)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_learns_and_resumes(dtype, tmp_path):
    flags = ("--every=20", f"--dtype={dtype}", "--batch_size=32", "--steps=60")
    lines = call(tmp_path, "train", *flags).splitlines()
    losses = [float(line.split("loss ")[1].split()[0]) for line in lines if line.startswith("step")]
    assert losses[-1] < 0.8 * losses[0]
    weights = {name: value for name, value in saved(tmp_path).items() if name.startswith("weights")}
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}
    assert "resuming at step 60" in call(tmp_path, "train", *flags)


def collect(seed, first_step):
    """Returns the batches of 50 examples from a step on."""
    images = np.arange(50, dtype=np.uint8).reshape(50, 1, 1, 1) * np.ones([1, 8, 8, 1], np.uint8)
    batches = data.training_batches(
        data.Examples(images, np.arange(50)), batch_size=10, steps=12, seed=seed, first_step=first_step
    )
    return [{name: value.numpy() for name, value in batch.items()} for batch in batches]


def test_batches_continue_at_any_step_and_each_pass_has_another_order():
    whole = collect(3, 0)
    assert len(whole) == 12
    for first in (1, 7, 12):
        rest = collect(3, first)
        assert len(rest) == 12 - first
        for one, other in zip(whole[first:], rest, strict=True):
            for name in ("image", "label", "sample"):
                np.testing.assert_array_equal(one[name], other[name])
    labels, other_seed = (np.concatenate([batch["label"] for batch in of]) for of in (whole, collect(4, 0)))
    for labels_of_pass in (labels[:50], labels[50:100]):
        np.testing.assert_array_equal(np.sort(labels_of_pass), np.arange(50))
    assert (labels[:50] != labels[50:100]).mean() > 0.8
    assert (labels != other_seed).mean() > 0.8


def test_distortion_moves_an_image_by_at_most_a_pixel():
    image = np.zeros([8, 8, 1], np.uint8)
    image[4, 4] = 9
    places = {
        tuple(np.argwhere(data.distort(image, [0, seed]).numpy()[..., 0]).ravel().tolist()) for seed in range(100)
    }
    assert places == {(row, column) for row in (3, 4, 5) for column in (3, 4, 5)}


def test_no_held_out_digit_is_trained_on():
    splits = data.load()
    assert [len(part.labels) for part in splits] == [1257, 180, 360]
    for part in splits:
        assert part.images.dtype == np.uint8 and part.images.shape[1:] == (8, 8, 1) and part.images.max() == 255
    again = data.load()
    np.testing.assert_array_equal(splits.held_out.images, again.held_out.images)


def small_state(run):
    network = keras.Sequential([keras.layers.Dense(2)])
    network.build([None, 3])
    optimizer = keras.optimizers.Adam()
    optimizer.build(network.trainable_variables)
    return checkpoints.State(run, network, optimizer)


def test_incomplete_checkpoint_is_ignored(tmp_path):
    state = small_state(tmp_path)
    state.step.assign(10)
    state.save()
    for name in ("ckpt-20.index", "ckpt-20.data-00000-of-00001"):
        (tmp_path / "latest" / name).write_bytes(b"half of")
    assert small_state(tmp_path).restore() == 10


def test_lowest_loss_saves_the_weights_and_resets_patience(tmp_path):
    state = small_state(tmp_path)
    assert state.judge(2.0)
    assert not state.judge(2.0) and not state.judge(3.0)
    assert int(state.rounds_since_best) == 2
    state.step.assign(30)
    assert state.judge(1.0) and int(state.rounds_since_best) == 0
    assert not state.judge(float("nan"))
    assert state.best.latest_checkpoint.endswith("-30")


def test_existing_run_rejects_other_settings(tmp_path):
    checkpoints.keep_settings(tmp_path, {"seed": 0})
    checkpoints.keep_settings(tmp_path, {"seed": 0})
    with pytest.raises(SystemExit, match=r"--seed was 0 and is 1.*another --run"):
        checkpoints.keep_settings(tmp_path, {"seed": 1})
    assert checkpoints.read_settings(tmp_path) == {"seed": 0}


def test_commands_report_missing_input(tmp_path):
    for words, message in [
        (["evaluate"], "holds no run"),
        (["predict"], "no SavedModel"),
        (["learn"], "expected one of train, evaluate, export, predict, got learn"),
    ]:
        status, printed = end(*start(tmp_path, *words))
        assert status == 1 and message in printed


def test_metrics_of_known_logits():
    labels = np.array([0, 0, 1, 2], np.int32)
    logits = tf.constant([[9.0, 0, 0], [0, 9.0, 0], [0, 9.0, 0], [0, 0, 9.0]])
    measured = metrics.measure(labels, logits)
    np.testing.assert_array_equal(measured.confusion, [[1, 1, 0], [0, 1, 0], [0, 0, 1]])
    assert measured.accuracy == 0.75
    expected = np.mean(
        [np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits.numpy(), labels, strict=True)]
    )
    assert abs(measured.loss - expected) < 1e-5
    lines = metrics.table(measured.confusion, "abc").splitlines()
    assert lines[1].split() == ["a", "1", "1", ".", "0.500"]
    assert lines[-1].split() == ["precision", "1.00", "0.50", "1.00"]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, *sys.argv[1:]]))
