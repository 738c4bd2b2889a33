/*
 * The telemetry of an emulated iteration, as a recording in virtual time (telemetry/recording.h):
 * power, energy, clocks and what lowers them, temperatures, bytes of links, of every GPU. The
 * sensors are those of the first repeat. Bytes inside layers flow evenly while a GPU works, those
 * of gradients while it sums them.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_RECORDING_H
#define ERG_CHARACTERIZE_EMULATE_RECORDING_H

#include "characterize/emulate_internal.h"

/* Reads of a GPU in an iteration at most: of a longer one they are farther apart. */
enum { ERG_EMULATE_READS = 2048 };

/* The seed of a GPU's sensors in a repeat. */
uint64_t erg_emulation_sensor_key(const struct emulation *emulation, size_t repeat, long rank);

/* FOLDER/points/ID.rec; the folder points/ is there. */
int erg_emulation_write_recording(const struct emulation *emulation, const char *folder,
                                  struct erg_error *err);

#endif
