"""A command as several ranks, whose lines come with their numbers: python3 launch.py RANKS COMMAND..."""
import sys

import ergon


def print_line(rank, is_error, text):
    print(f"rank {rank}: {text}", file=sys.stderr if is_error else sys.stdout)


try:
    ergon.launch(sys.argv[2:], int(sys.argv[1]), timeout_s=60, line=print_line)
except ergon.Error as problem:
    sys.exit(str(problem))
print(f"all {sys.argv[1]} ranks have ended")
