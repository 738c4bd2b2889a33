"""The frontier of a measured pipeline, and the rows of it: python3 ask.py PROFILE.csv MICROBATCHES"""
import sys

import ergon

answer = ergon.ask.frontier(sys.argv[1], microbatches=int(sys.argv[2]), blocking_power_w=80)
print(answer.text, answer.csv, sep="", end="")
