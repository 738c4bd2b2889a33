/* Packed steps: steps as bytes, between processes of one binary on one machine. */
#ifndef ERG_DEVICE_PACKED_STEPS_H
#define ERG_DEVICE_PACKED_STEPS_H

#include "device/work.h"
#include "ergon/error.h"

size_t erg_packed_steps_bytes(const struct erg_step *steps, size_t count);
void erg_packed_steps_write(const struct erg_step *steps, size_t count, char *bytes);

/*
 * *steps are within `bytes` afterwards and point into them. Fails unless the counts add up to
 * `size`.
 */
int erg_packed_steps_read(char *bytes, size_t size, size_t count, const struct erg_step **steps,
                          struct erg_error *err);

#endif
