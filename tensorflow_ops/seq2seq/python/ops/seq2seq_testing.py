"""For tests: language models with known probabilities, and processors of logits as loops over Python lists."""

import math

import numpy as np
import tensorflow as tf

from tensorflow_ops.seq2seq import processors


def markov(rows, dtype=tf.float32):
    """Returns a step_fn whose next token depends on the last one only, from logits or log probabilities [V, V]."""
    table = tf.constant(rows, dtype)
    return lambda tokens, state: (tf.gather(table, tokens), state)


def log_probabilities(*rows):
    """Returns the logarithms of rows of probabilities."""
    with np.errstate(divide="ignore"):
        return np.log(rows)


# The definitions of tfo.seq2seq.processors, by name. Each maps scores [V] to new ones, for the tokens before: those of
# the history, then those of `step` steps.


def _weights(scores):
    if scores.max() == -math.inf:
        return np.zeros_like(scores)
    p = np.exp(scores - scores.max())
    return p / p.sum()


def _keep(scores, tokens):
    return np.array([x if t in tokens else -math.inf for t, x in enumerate(scores)])


def _descending(values):
    return sorted(range(len(values)), key=lambda t: (-values[t], t))


def _repetition_penalty(tokens, step, scores, penalty):
    del step
    return np.array([(x * penalty if x < 0 else x / penalty) if t in tokens else x for t, x in enumerate(scores)])


def _no_repeat_ngrams(tokens, step, scores, size):
    del step
    seen = {tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)}
    following = [(*tokens, t)[len(tokens) + 1 - size :] if len(tokens) + 1 >= size else () for t in range(len(scores))]
    return np.array([-math.inf if new in seen else x for new, x in zip(following, scores, strict=True)])


def _sequence_bias(tokens, step, scores, biases):
    del step
    sums = [sum(b for w, b in biases.items() if (*tokens, t)[-len(w) :] == tuple(w)) for t in range(len(scores))]
    return np.array([x + bias for x, bias in zip(scores, sums, strict=True)])


def _bad_words(tokens, step, scores, words):
    return _sequence_bias(tokens, step, scores, {tuple(word): -math.inf for word in words})


def _suppress_tokens(tokens, step, scores, ids, first_steps=None):
    del tokens
    is_on = first_steps is None or step < first_steps
    return np.array([-math.inf if is_on and t in ids else x for t, x in enumerate(scores)])


def _force_tokens(tokens, step, scores, ids, at):
    del tokens
    return scores if step != at else np.array([0 if t in ids else -math.inf for t in range(len(scores))])


def _temperature(tokens, step, scores, value):
    del tokens, step
    return scores / value


def _top_k(tokens, step, scores, k):
    del tokens, step
    return _keep(scores, _descending(scores)[:k])


def _top_p(tokens, step, scores, p):
    del tokens, step
    kept, total, weights = set(), 0.0, _weights(scores)
    for t in _descending(weights):
        if total >= p:
            break
        kept.add(t)
        total += weights[t]
    return _keep(scores, kept)


def _min_p(tokens, step, scores, p):
    del tokens, step
    weights = _weights(scores)
    return _keep(scores, [t for t, w in enumerate(weights) if w >= p * weights.max()])


def _typical_p(tokens, step, scores, p):
    del tokens, step
    weights = _weights(scores)
    entropy = -sum(w * math.log(w) for w in weights if w > 0)
    distance = [abs(-math.log(w) - entropy) if w > 0 else math.inf for w in weights]
    kept, total = set(), 0.0
    for t in sorted(range(len(weights)), key=lambda t: distance[t]):
        if total >= p:
            break
        kept.add(t)
        total += weights[t]
    return _keep(scores, kept)


def process_by_definition(rules, tokens, step, scores):
    """Returns scores after the processors of rules, [(name, arguments)], in order."""
    for name, arguments in rules:
        scores = globals()[f"_{name}"](tokens, step, np.asarray(scores, np.float64), **arguments)
    return scores


def processor_of(name, arguments):
    """Returns the processor of a rule."""
    first, *others = arguments.items()
    return getattr(processors, name)(first[1], **{"step" if key == "at" else key: value for key, value in others})
