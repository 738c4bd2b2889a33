/*
 * The parts of an emulated point: what every GPU is and does, the schedule, power and heat.
 */
#ifndef ERG_CHARACTERIZE_EMULATE_INTERNAL_H
#define ERG_CHARACTERIZE_EMULATE_INTERNAL_H

#include "characterize/emulate_point.h"
#include "characterize/links.h"
#include "iteration/iteration.h"
#include "layout/energy/layout_energy.h"
#include "thermal/thermal.h"

#include <math.h>

/* What a GPU does for one microbatch of a chunk in one direction. */
struct emulated_pass {
    double own_s;              /* at its own clock, without waiting for its group */
    double spin_s;             /* in collectives, for the slowest of its group */
    double wait_s;             /* of own_s: at blocking power, for weights that are gathered */
    double energy_j;           /* with spinning */
    double memory_j;           /* of the HBM */
    double part_s[ERG_PASSES]; /* of own_s: passes of layers, and of the head */
    double clock_mhz;          /* mean over these */
    double cap_s, heat_s;      /* of own_s, below the request because of it */
    double head_s, exposed_s;  /* of own_s: the head; communication that nothing hides */
    double embedding_s, embedding_j; /* of own_s and energy_j, in the first chunk of all */
};

/* What a GPU's time is, beside passes. */
enum emulated_kind {
    EMULATED_WAIT,      /* for other stages and their messages */
    EMULATED_GRADIENTS, /* sums of gradients, new weights */
    EMULATED_OPTIMIZER,
    EMULATED_KINDS,
};

struct emulated_rank {
    long node, local;
    long tensor, context, data, stage;
    double request_mhz; /* what is asked for */
    double cap_w;       /* of the group's power cap what the others leave while it works */
    double fault_mhz;   /* the clock that a fault leaves; 0: none */
    double heat_mhz;    /* the clock that heat leaves; INFINITY: it does not act */
    double free_mhz;    /* the highest of a pass when heat last did not act */
    double busy_c;      /* of the die, mean while it works */
    double mean_c;
    struct emulated_pass *passes; /* by chunk and direction */
    struct erg_layout_costs costs;
    double spin_w;
    double kind_w[EMULATED_KINDS], optimizer_s;
    double power_w; /* mean */
    double hbm_w;   /* mean of its memory */
};

/* Time of a stage in one replica, from the iteration's begin to its end. */
struct emulated_phase {
    double end_s;
    long pass;       /* 2 chunk + direction; -1: `kind` */
    long microbatch; /* of a pass */
    enum emulated_kind kind;
    double message_s; /* of a wait: a message's transfer; the rest is for other stages */
};
struct emulated_lane {
    struct emulated_phase *items;
    size_t count, capacity;
};

/* The embedding of a microbatch in one direction: rows of the table, and the exchange of the tensor
 * group, beside which nothing runs. */
struct emulated_embedding {
    double bytes, memory_s; /* at a clock at which the HBM sets the pace */
    double wire_bytes, exchange_s;
    enum erg_comm_kind exchange; /* ERG_COMM_NONE: there is none */
    int kernels;
};

struct emulation {
    const struct erg_study_point *point;
    struct erg_arena *arena;
    struct erg_model model; /* with the adapters that the point trains */
    struct erg_layout layout;
    struct erg_engine engine; /* with what the point overlaps */
    struct erg_gpu gpu;       /* with the power limit that is asked for */
    struct erg_chassis chassis;
    bool heated; /* there is a chassis */
    double inlet_c;
    struct erg_time_machine machine;
    struct erg_layout_energy_request request;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    struct emulated_embedding embedding[2]; /* forward, backward */
    long gpus, node_gpus, nodes;
    long ranks;                   /* of a stage */
    long coupled;                 /* data ranks that exchange in every layer */
    long sets;                    /* of those; they have a schedule each */
    long passes;                  /* of a stage: 2 x chunks */
    long *places;                 /* of each rank: node x node_gpus + local */
    struct emulated_rank *gpu_at; /* by rank */

    struct erg_schedule schedule;
    double *pass_s; /* [set][table]: with waiting for the group */
    double *end_s;  /* [set][instruction] */
    /* Messages from each stage to the next ([0]) and back ([1]): seconds, at how many a time of the
     * node's GPUs they are sent, [data][2][stage]. */
    struct emulated_hop {
        double base_s, crowd; /* alone; by how many times longer with others' messages */
        long senders;         /* of the node, to another one; 0: it stays in the node */
        long node;
    } * hops;
    struct emulated_lane *lanes;   /* [set][stage] */
    double *gradient_s, *gather_s; /* [stage]: sums, new weights */
    double begin_s, time_s;
    double *k_per_w; /* the chassis' matrix */
    unsigned rounds;
    bool settled;
    struct emulated_course { /* of a cold start */
        struct erg_result_moment *items;
        size_t count, capacity;
    } course;
};

/* Fails where the point cannot be emulated; *fits false: it does not fit, as the result says. To
 * be released. */
int erg_emulation_init(struct emulation *emulation, const struct erg_study_point *point,
                       struct erg_study_result *result, bool *fits, struct erg_arena *arena,
                       struct erg_error *err);
void erg_emulation_release(struct emulation *emulation);

void erg_emulation_find_embedding(struct emulation *emulation);

/* What every GPU does in its passes at its temperature. */
void erg_emulation_run_passes(struct emulation *emulation);
/* W and J of a pass of one GPU at a clock and temperature, for the limit of heat. */
struct emulated_load {
    const struct emulation *emulation;
    const struct emulated_rank *gpu;
};
void erg_emulation_load(const void *load, double clock_mhz, double temperature_c, double *busy_w,
                        double *mean_w);

/* When every pass runs: fills lanes and time_s. */
void erg_emulation_run_schedule(struct emulation *emulation);

/* Mean power of every GPU, and its power in what is not a pass; what it leaves of a cap that
 * several share. */
void erg_emulation_run_power(struct emulation *emulation);
/* Power of a GPU in a phase. */
double erg_emulation_phase_w(const struct emulation *emulation, const struct emulated_rank *gpu,
                             const struct emulated_phase *phase);
/* Temperatures that follow, all the way or (damping < 1) a part of it; how far the farthest moved,
 * K. */
double erg_emulation_run_heat(struct emulation *emulation, double damping);
/* From a cold start on: whole iterations until `until_s` have passed, or the steady state is
 * there. */
int erg_emulation_warm_up(struct emulation *emulation, double until_s, struct erg_error *err);
/* How far the die is from its mean at the end of each phase of its lane, in K, for those who want
 * that (`ripple_k` not NULL); the mean while it works. */
double erg_emulation_ripple(const struct emulation *emulation, const struct emulated_rank *gpu,
                            double *ripple_k);

/* The clock of a GPU that waits: the one that is asked for, or that heat leaves; the cap is far. */
static inline double erg_emulation_waiting_mhz(const struct emulated_rank *gpu)
{
    return gpu->fault_mhz > 0 ? gpu->fault_mhz : fmin(gpu->request_mhz, gpu->heat_mhz);
}

static inline const struct emulated_lane *erg_emulation_lane(const struct emulation *emulation,
                                                             const struct emulated_rank *gpu)
{
    return &emulation
                ->lanes[gpu->data / emulation->coupled * emulation->layout.pipeline + gpu->stage];
}

void erg_emulation_fill_result(const struct emulation *emulation, struct erg_study_result *result);

static inline struct erg_links_request erg_emulation_links(const struct emulation *emulation)
{
    return (struct erg_links_request){
        .model = &emulation->model,
        .engine = &emulation->engine,
        .layout = &emulation->layout,
        .node_gpus = emulation->node_gpus,
        .places = emulation->places,
    };
}

#endif
