/* Samples of all GPUs into a file that survives a crash (telemetry/recording.h). */
#ifndef ERG_OBSERVE_RECORD_H
#define ERG_OBSERVE_RECORD_H

#include "ergon/error.h"

struct erg_record_input {
    const char *output;         /* a file that must not exist */
    const char *gpus;           /* as for erg_gpus_open() */
    long interval_ms;           /* between two samples of energy and power */
    double duration_s;          /* NAN: until the command ends, or a signal comes */
    const char *const *command; /* ends with NULL; NULL: no command */
};

/*
 * Fails with the command's own exit status if there is one. Logs lost samples and the imbalance of
 * the GPUs.
 */
int erg_record(const struct erg_record_input *input, struct erg_error *err);

#endif
