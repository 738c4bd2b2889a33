/*
 * Simulations of a trace on a cluster under one or several policies, with the files that they read
 * and write.
 */
#ifndef ERG_API_SIMULATING_H
#define ERG_API_SIMULATING_H

#include "cluster/simulate/outages.h"
#include "cluster/simulate/simulation.h"

#include <jansson.h>

struct erg_simulating;

/* The wish; NULL texts and NAN numbers are not given. */
struct erg_simulating_wish {
    bool dashes; /* messages name what was wished as options of the command line */
    const char *cluster, *trace, *policies, *profiles;
    const char *tariff, *outages, *folder;
    double until_s, power_cap_w; /* INFINITY: no bound */
    double work;
    double failure_s, repair_s; /* of drawn failures */
    uint64_t seed;
    bool page; /* the comparison is kept, also without a folder */
    /* After each policy. NULL: not wanted. */
    void (*each)(void *context, const struct erg_simulating *at,
                 const struct erg_simulated *result);
    void *context;
};

struct erg_simulating {
    const struct erg_simulating_wish *wish;
    struct erg_simulation simulation; /* of the policy that is simulated now */
    struct erg_fleet *fleet;
    struct erg_job_trace *trace;
    struct erg_speeds *speeds;
    struct erg_outages outages;
    struct erg_tariff tariff;
    struct {
        const struct erg_policy **items;
        size_t count, capacity;
    } policies;
    json_t *documents;  /* summaries, in the order of the policies */
    json_t *comparison; /* for a page; NULL: none is wanted */
};

/* Takes a program's options; nothing is done after a policy. */
struct erg_simulations_options;
int erg_simulating_take(struct erg_simulating_wish *wish,
                        const struct erg_simulations_options *options, struct erg_error *err);

/* The caller releases it in any case; the wish must outlive it. */
int erg_simulating_run(struct erg_simulating *at, const struct erg_simulating_wish *wish,
                       struct erg_error *err);
void erg_simulating_release(struct erg_simulating *at);

/* One summary, or those of several policies; a new reference. */
json_t *erg_simulating_document(const struct erg_simulating *at);

#endif
