/*
 * What owner and guardian say to each other, in packets. Both are of one build: a stale guardian is
 * found by its version. Private to the room.
 */
#ifndef ERG_TELEMETRY_GUARDIAN_INTERNAL_H
#define ERG_TELEMETRY_GUARDIAN_INTERNAL_H

#include "ergon/error.h"

#include <stdint.h>

enum { ERG_GUARDIAN_VERSION = 1 };

enum erg_guardian_task {
    ERG_GUARDIAN_WATCH, /* answered */
    ERG_GUARDIAN_END,   /* not answered: the guardian ends */
};

struct erg_guardian_request {
    int32_t task; /* enum erg_guardian_task */
    char uuid[96];
};

/* Also sent once at the start, before any request. */
struct erg_guardian_answer {
    int32_t version;
    int32_t failed;
    struct erg_error error;
};

#endif
