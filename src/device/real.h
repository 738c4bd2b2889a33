/*
 * Real GPUs: the GPUs of this machine as a device, one process per GPU. Builds without CUDA fail to
 * open them, and name the missing part.
 */
#ifndef ERG_DEVICE_REAL_H
#define ERG_DEVICE_REAL_H

#include "device/device.h"
#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct erg_real;

struct erg_real_request {
    const struct erg_model *model; /* outlives the device */
    int tensor, context;           /* degrees; their product is the number of processes */
    int layers;                    /* layers of an instruction, >= 1 */
    bool replay; /* keep only a layer's input; run its forward again before its backward */
    int sequences, sequence; /* of the microbatch */
    uint64_t seed;           /* of weights and data */
    bool lock_clocks;        /* a user asked explicitly for locked clocks */
};

/*
 * Every process of the job calls it. Rank 0 gets the device. On the other ranks it returns after
 * rank 0 has closed the device, with erg_real_device() NULL. ERG_NO_DEVICE without CUDA or GPUs,
 * ERG_USAGE if the number of processes is not the product of the degrees.
 */
int erg_real_open(struct erg_real **real, const struct erg_real_request *request,
                  struct erg_error *err);
struct erg_device *erg_real_device(const struct erg_real *real);
void erg_real_close(struct erg_real *real);

#endif
