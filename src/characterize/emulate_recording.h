/*
 * The telemetry of an emulated iteration as a recording in virtual time (telemetry/recording.h):
 * power, energy, clocks and the reasons for lower ones, temperatures, and bytes on links, of every
 * GPU. The sensors are those of the first repeat. Bytes inside layers are spread evenly over a
 * GPU's working time, those of gradients over the time of their sums.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_RECORDING_H
#define ERG_CHARACTERIZE_EMULATE_RECORDING_H

#include "characterize/emulate_internal.h"

/* Most reads of a GPU in an iteration; a longer iteration increases the interval. */
enum { ERG_EMULATE_READS = 2048 };

/* The random seed of a GPU's sensors in a repeat. */
uint64_t erg_emulation_sensor_key(const struct emulation *emulation, size_t repeat, long rank);

/* Writes FOLDER/points/ID.rec; the folder points/ must exist. */
int erg_emulation_write_recording(const struct emulation *emulation, const char *folder,
                                  struct erg_error *err);

#endif
