"""Counts the instructions of CUDA kernels' loops over tensor cores, along the fast path, without a GPU.

usage: nvcc -O3 -std=c++17 -I. -x cu -cubin -arch=sm_90 tensorflow_ops/.../attention_gpu.cu.cc -o attention.cubin
       nvdisasm -c attention.cubin | python3 tools/gpu/count_instructions.py [--copies N] [KERNEL]

For each kernel whose mangled name contains KERNEL: of the paths through the loop with the most multiplications (HMMA),
and with N asynchronous copies (LDGSTS), the one with the fewest instructions, loops within counted once. Without
--copies, one for each number of copies.
"""

import argparse
import collections
import re
import sys

KINDS = ["HMMA", "LDGSTS", "LDSM", "MUFU", "LDS", "LDL", "LDG", "SHFL"]


def blocks_of(lines):
    """Returns {block: (its instructions, the blocks that may follow)}; blocks begin at labels and after branches."""
    blocks, name, falls, ends = {"entry": ([], [])}, "entry", True, False
    for line in lines:
        label = re.match(r"(\.L\w+):", line)
        code = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+ )?\s*([A-Z0-9_.]+)(.*);", line)
        if label or (code and ends):
            new = label[1] if label else f"block {len(blocks)}"
            if falls:
                blocks[name][1].append(new)
            blocks[new], name, falls, ends = ([], []), new, True, False
        if code:
            blocks[name][0].append(code[2])
            # BRA.DIV is for lanes that are apart only. A call of a label is a jump, that of a function returns.
            to = re.search(r"(?:BRA|CALL)(?!\.DIV).*`\((\.L\w+)\)", line)
            if to:
                blocks[name][1].append(to[1])
            if to or code[2].startswith(("EXIT", "RET")):
                falls, ends = code[1] is not None or re.match(" !?U?P", code[3]) is not None, True
    return {block: (own, [to for to in follow if to in blocks]) for block, (own, follow) in blocks.items()}


def loops_of(blocks):
    """Returns {header: blocks of the loop}, and the edges back to headers."""
    states, back, stack = {"entry": "open"}, set(), [("entry", iter(blocks["entry"][1]))]
    while stack:
        block, rest = stack[-1]
        to = next(rest, None)
        if to is None:
            states[block] = "done"
            stack.pop()
        elif to not in states:
            states[to] = "open"
            stack.append((to, iter(blocks[to][1])))
        elif states[to] == "open":
            back.add((block, to))
    before = collections.defaultdict(list)
    for block, (_, follow) in blocks.items():
        for to in follow:
            before[to].append(block)
    loops = collections.defaultdict(set)
    for last, header in back:
        loops[header].add(header)
        todo = [last]
        while todo:
            block = todo.pop()
            if block not in loops[header]:
                loops[header].add(block)
                todo += before[block]
    return loops, back


def shortest_paths(blocks, header, loop, back):
    """Returns {(multiplications, copies): the instructions of the shortest such path through a loop}."""
    found = {}

    def paths(block):
        if block not in found:
            own, follow = blocks[block]
            kinds = collections.Counter(name.split(".")[0] for name in own)
            here = {(0, 0): collections.Counter()} if (block, header) in back else {}
            for to in follow:
                if to in loop and (block, to) not in back:
                    for key, rest in paths(to).items():
                        if key not in here or rest.total() < here[key].total():
                            here[key] = rest
            found[block] = {(m + kinds["HMMA"], c + kinds["LDGSTS"]): rest + kinds for (m, c), rest in here.items()}
        return found[block]

    return paths(header)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernel", nargs="?", default="", help="part of the kernels' mangled names")
    parser.add_argument("--copies", type=int, help="asynchronous copies of a path")
    arguments = parser.parse_args()
    sys.setrecursionlimit(100000)
    for kernel in re.split(r"^\.text\.", sys.stdin.read(), flags=re.M)[1:]:
        name, _, code = kernel.partition(":")
        if arguments.kernel not in name or "HMMA" not in code:
            continue
        blocks = blocks_of(code.splitlines())
        loops, back = loops_of(blocks)
        each = sorted((len(loop), header) for header, loop in loops.items())
        each = [shortest_paths(blocks, header, loops[header], back) for _, header in each]
        most = max(mma for paths in each for mma, _ in paths)
        smallest = next(paths for paths in each if any(mma == most for mma, _ in paths))
        for (mma, copies), kinds in sorted(smallest.items()):
            if mma == most and arguments.copies in (None, copies):
                counts = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS)
                print(f"{name}: {kinds.total()} instructions, {counts}")


if __name__ == "__main__":
    main()
