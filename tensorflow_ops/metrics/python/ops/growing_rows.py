"""Tables in variables that grow in a tf.function, too."""

from concurrent import futures

import tensorflow as tf


def cpu_variables(make):
    """Returns what `make` returns: variables on the CPU, which no strategy mirrors."""

    def call():
        with tf.device("CPU:0"):
            return make()

    # The scope of a strategy, or of a graph, holds for its thread only.
    with futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(call).result()


class GrowingRows:
    """Rows of some columns. Their memory doubles when it is full, so appending takes constant time."""

    def __init__(self, **columns):
        """Makes an empty table.

        Args:
          **columns: the dtype and the dims of a row, by name.
        """

        def make():
            return tf.Variable(0, dtype=tf.int64, trainable=False), {
                name: tf.Variable(tf.zeros([0, *dims], dtype), shape=[None, *dims], trainable=False)
                for name, (dtype, dims) in columns.items()
            }

        self._count, self._columns = cpu_variables(make)

    def append(self, **rows):
        """Appends rows, a tensor of each column."""
        count, columns = self._count.read_value(), self._columns
        end = count + tf.shape(next(iter(rows.values())), tf.int64)[0]
        # Not tf.shape, which would read the values.
        room = tf.raw_ops.VariableShape(input=next(iter(columns.values())).handle, out_type=tf.int64)[0]

        def grow():
            more = tf.maximum(end, 2 * room) - room
            for column in columns.values():
                column.assign(tf.pad(column, [[0, more]] + [[0, 0]] * (column.shape.rank - 1)))
            return more

        with tf.control_dependencies([tf.cond(end > room, grow, lambda: tf.constant(0, tf.int64))]):
            where = {"begin": tf.stack([count]), "end": tf.stack([end]), "strides": tf.constant([1], tf.int64)}
            for name, values in rows.items():
                tf.raw_ops.ResourceStridedSliceAssign(ref=columns[name].handle, value=values, **where)
            self._count.assign(end)

    def rows(self):
        """Returns a tensor of each column, by name."""
        return {name: column[: self._count] for name, column in self._columns.items()}

    def clear(self):
        """Removes all rows and frees their memory."""
        self._count.assign(0)
        for column in self._columns.values():
            column.assign(column[:0])
