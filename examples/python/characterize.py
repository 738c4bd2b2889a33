"""Layouts of a study by power and heat: python3 characterize.py STUDY.yaml FOLDER"""
import sys

import ergon

study = ergon.characterize(sys.argv[1], sys.argv[2])
counts = study.counts
print(f"{counts.ran} points ran: {counts.ok} ok, {counts.memory} out of memory, "
      f"{counts.impossible} impossible, {counts.failed} failed")
