/* The parts of an emulated point: the state of every GPU, the schedule, power and heat. */
#ifndef ERG_CHARACTERIZE_EMULATE_INTERNAL_H
#define ERG_CHARACTERIZE_EMULATE_INTERNAL_H

#include "characterize/emulate_point.h"
#include "characterize/links.h"
#include "iteration/iteration.h"
#include "layout/energy/layout_energy.h"
#include "thermal/thermal.h"

#include <math.h>

/* The work of a GPU for one microbatch of a chunk in one direction. */
struct emulated_pass {
    double own_s;              /* at its own clock, without waiting for its group */
    double spin_s;             /* in collectives, while it waits for the slowest GPU of its group */
    double wait_s;             /* part of own_s: at blocking power, while it waits for gathered
                                * weights */
    double energy_j;           /* includes spinning */
    double memory_j;           /* of the HBM */
    double part_s[ERG_PASSES]; /* parts of own_s: passes of layers, and of the head */
    double clock_mhz;          /* mean over own_s */
    double cap_s, heat_s;      /* parts of own_s: below the requested clock because of the cap or of
                                * heat */
    double head_s, exposed_s;  /* parts of own_s: the head; communication that no compute hides */
    double embedding_s, embedding_j; /* parts of own_s and energy_j: the embedding, in the first
                                      * chunk only */
};

/* The time of a GPU outside passes. */
enum emulated_kind {
    EMULATED_WAIT,      /* for other stages and their messages */
    EMULATED_GRADIENTS, /* sums of gradients, gathers of new weights */
    EMULATED_OPTIMIZER,
    EMULATED_KINDS,
};

struct emulated_rank {
    long node, local;
    long tensor, context, data, stage;
    double request_mhz; /* requested clock */
    double cap_w;       /* part of the group's power cap that the others leave while it works */
    double fault_mhz;   /* highest clock because of a fault; 0: none */
    double heat_mhz;    /* highest clock because of heat; INFINITY: no limit */
    double free_mhz;    /* highest clock of a pass when heat last set no limit */
    double busy_c;      /* of the die, mean while it works */
    double mean_c;
    struct emulated_pass *passes; /* by chunk and direction */
    struct erg_layout_costs costs;
    double spin_w;
    double kind_w[EMULATED_KINDS], optimizer_s;
    double power_w; /* mean */
    double hbm_w;   /* mean power of its memory */
};

/* The timeline of a stage in one replica, from the start to the end of the iteration. */
struct emulated_phase {
    double end_s;
    long pass;       /* 2 * chunk + direction; -1: see `kind` */
    long microbatch; /* of a pass */
    enum emulated_kind kind;
    double message_s; /* part of a wait: the transfer of a message; the rest waits for other
                       * stages */
};
struct emulated_lane {
    struct emulated_phase *items;
    size_t count, capacity;
};

/* The embedding of a microbatch in one direction: table rows, and the exchange of the tensor group,
 * which does not overlap with compute. */
struct emulated_embedding {
    double bytes, memory_s; /* at a clock that is high enough for the HBM to limit the speed */
    double wire_bytes, exchange_s;
    enum erg_comm_kind exchange; /* ERG_COMM_NONE: no exchange */
    int kernels;
};

struct emulation {
    const struct erg_study_point *point;
    struct erg_arena *arena;
    struct erg_model model; /* with the adapters that the point trains */
    struct erg_layout layout;
    struct erg_engine engine; /* including what the point overlaps */
    struct erg_gpu gpu;       /* with the point's power limit */
    struct erg_chassis chassis;
    bool heated; /* the cluster has a chassis */
    double inlet_c;
    struct erg_time_machine machine;
    struct erg_layout_energy_request request;
    struct erg_time_parts parts;
    struct erg_layout_work work;
    struct emulated_embedding embedding[2]; /* forward, backward */
    long gpus, node_gpus, nodes;
    long ranks;                   /* ranks of a stage */
    long coupled;                 /* data ranks that exchange in every layer */
    long sets;                    /* number of such sets; each has its own schedule */
    long passes;                  /* passes of a stage: 2 * chunks */
    long *places;                 /* [rank]: node * node_gpus + local */
    struct emulated_rank *gpu_at; /* [rank] */

    struct erg_schedule schedule;
    double *pass_s; /* [set][table]: including the wait for the group */
    double *end_s;  /* [set][instruction] */
    /* Messages from each stage to the next ([0]) and back ([1]): their time, and how many GPUs of
     * the node send at once, [data][2][stage]. */
    struct emulated_hop {
        double base_s, crowd; /* time when sent alone; its factor when other messages are sent at
                               * the same time */
        long senders;         /* GPUs of the node that send to other nodes at once; 0: the message
                               * stays in the node */
        long node;
    } * hops;
    struct emulated_lane *lanes;   /* [set][stage] */
    double *gradient_s, *gather_s; /* [stage]: sums, new weights */
    double begin_s, time_s;
    double *k_per_w; /* thermal matrix of the chassis */
    unsigned rounds;
    bool settled;
    struct emulated_course { /* after a cold start */
        struct erg_result_moment *items;
        size_t count, capacity;
    } course;
};

/* Fails if the point cannot be emulated. *fits is false if it does not fit into memory; the result
 * describes by how much. Release it. */
int erg_emulation_init(struct emulation *emulation, const struct erg_study_point *point,
                       struct erg_study_result *result, bool *fits, struct erg_arena *arena,
                       struct erg_error *err);
void erg_emulation_release(struct emulation *emulation);

void erg_emulation_find_embedding(struct emulation *emulation);

/* Computes the passes of every GPU at its temperature. */
void erg_emulation_run_passes(struct emulation *emulation);
/* Power and energy of a pass of one GPU at a clock and temperature, for the heat limit. */
struct emulated_load {
    const struct emulation *emulation;
    const struct emulated_rank *gpu;
};
void erg_emulation_load(const void *load, double clock_mhz, double temperature_c, double *busy_w,
                        double *mean_w);

/* Computes the start and end of every pass: fills lanes and time_s. */
void erg_emulation_run_schedule(struct emulation *emulation);

/* Mean power of every GPU, its power outside passes, and its share of a power cap that several GPUs
 * have together. */
void erg_emulation_run_power(struct emulation *emulation);
/* Power of a GPU in a phase. */
double erg_emulation_phase_w(const struct emulation *emulation, const struct emulated_rank *gpu,
                             const struct emulated_phase *phase);
/* Moves the temperatures to the resulting ones, by all of the difference or a part of it (damping <
 * 1); returns the largest change in K. */
double erg_emulation_run_heat(struct emulation *emulation, double damping);
/* From a cold start: whole iterations until `until_s` has passed or the temperatures are steady. */
int erg_emulation_warm_up(struct emulation *emulation, double until_s, struct erg_error *err);
/* The difference between the die and its mean at the end of each phase of its lane, in K
 * (`ripple_k` may be NULL); returns the mean while it works. */
double erg_emulation_ripple(const struct emulation *emulation, const struct emulated_rank *gpu,
                            double *ripple_k);

/* The clock of a waiting GPU: the requested one or the limit of heat, since its power is far below
 * the cap. */
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
