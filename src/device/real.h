/*
 * Real GPUs: the GPUs of this machine as a device, one process per GPU. They are there where ergon
 * was built with CUDA; in other builds opening them fails and names the missing part.
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
    int tensor, context;           /* degrees: as many processes */
    int layers;                    /* that instructions go through, >= 1 */
    bool replay;                   /* keep a layer's input only, run it again before its backward */
    int sequences, sequence;       /* of the microbatch */
    uint64_t seed;                 /* of weights and data */
    bool lock_clocks;              /* a user asked by name for locked clocks */
};

/*
 * Every process of the job calls it. Rank 0 gets the device. On the other ranks it returns when
 * rank 0 has closed the device, with erg_real_device() NULL: they have done their part.
 * ERG_NO_DEVICE without CUDA or GPUs, ERG_USAGE when the number of processes is not the degrees'.
 */
int erg_real_open(struct erg_real **real, const struct erg_real_request *request,
                  struct erg_error *err);
struct erg_device *erg_real_device(const struct erg_real *real);
void erg_real_close(struct erg_real *real);

#endif
