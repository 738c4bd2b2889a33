/*
 * The daemon's file (examples/daemon/ergond.yaml explains every key), and the rights of a process
 * on a GPU by its rules: the first rule that matches both wins; without one, the process may only
 * read.
 */
#ifndef ERG_DAEMON_RULES_H
#define ERG_DAEMON_RULES_H

#include "daemon/daemon_peer.h"
#include "telemetry/knobs.h"

struct erg_daemon_rule {
    enum erg_daemon_who { ERG_WHO_USER, ERG_WHO_GROUP, ERG_WHO_JOB } who;
    uint32_t id;   /* of the user or group */
    uint32_t may;  /* bits 1 << knob */
    bool of_job;   /* only GPUs that were granted to the job of the process */
    uint64_t gpus; /* otherwise these, as bits */
    int64_t least[ERG_KNOBS], most[ERG_KNOBS]; /* MHz and mW */
};

enum erg_daemon_standing { ERG_STANDING_BEFORE, ERG_STANDING_DEFAULT, ERG_STANDING_VALUE };

struct erg_daemon_config {
    struct erg_daemon_rule *rules;
    size_t rule_count;
    bool members_only; /* only users who match a rule get telemetry */
    int64_t period_ns; /* shortest period of telemetry */
    enum erg_daemon_standing standing_power;
    int64_t standing_mw, standing_mhz; /* 0: no lock */
    bool persistence;
    int64_t ttl_ns, longest_ns;
    double changes_per_s, node_changes_per_s;
    long burst;
    char *audit;      /* NULL: none */
    bool audit_every; /* logs each change, too */
};

/* Jobs that root has granted GPUs to. */
struct erg_daemon_grant {
    uint32_t job, uid; /* job 0: free */
    uint64_t gpus;
};
enum { ERG_DAEMON_GRANTS = 512 };

/* The file must belong to root or to this user, and no other user may have write access. */
int erg_daemon_config_load(struct erg_daemon_config *config, const char *path,
                           const struct erg_gpus *gpus, struct erg_error *err);
void erg_daemon_config_release(struct erg_daemon_config *config);

/* The rule for a process and a GPU, or NULL. */
const struct erg_daemon_rule *erg_daemon_rule_of(const struct erg_daemon_config *config,
                                                 const struct erg_daemon_grant *grants,
                                                 const struct erg_daemon_peer *peer, size_t gpu);

#endif
