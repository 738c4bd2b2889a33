/*
 * Jobs that were not served, because they do not fit or no policy ran them. Each is reported with
 * its line of the trace; none is dropped silently.
 */
#ifndef ERG_CLUSTER_UNSERVED_H
#define ERG_CLUSTER_UNSERVED_H

#include "base/text.h"
#include "cluster/fleet.h"
#include "cluster/job_trace.h"

enum erg_unserved_fate {
    ERG_UNSERVED_NOWHERE,     /* it can run on no GPUs of the cluster */
    ERG_UNSERVED_TURNED_AWAY, /* by the policy: it cannot run on the GPUs that it asks for */
    ERG_UNSERVED_NEVER_RUN,   /* for the same reason it waited until the end */
    ERG_UNSERVED_LEFT,        /* it waits, and no further event will start it */
    ERG_UNSERVED_FATES
};

struct erg_unserved {
    int job; /* index in the trace */
    enum erg_unserved_fate fate;
};

/* "nowhere", "turned_away", ...: the names in documents. */
extern const char *const erg_unserved_names[ERG_UNSERVED_FATES];

/* One sentence that begins with file and line. */
void erg_unserved_text(struct erg_text *out, const struct erg_unserved *unserved,
                       const struct erg_job_trace *trace, const struct erg_fleet *fleet,
                       const char *policy);

#endif
