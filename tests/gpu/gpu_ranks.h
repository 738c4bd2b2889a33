/*
 * For GPU programs of several ranks: started by hand they start themselves again, once for each
 * GPU (8, 4 or 2 of them), and where there are fewer than two GPUs they are skipped. More ranks
 * than GPUs share them, for tests of what is computed: their kernels take turns.
 */
#ifndef ERGON_GPU_RANKS_H
#define ERGON_GPU_RANKS_H

#include "gpu_check.h"

#include "device/cuda/collective.h"
#include "launch/rendezvous.h"

struct gpu_world {
    struct erg_launch_environment env;
    struct erg_rendezvous *rendezvous;
    struct erg_cuda cuda;
    int ranks[ERG_COLLECTIVE_MOST_RANKS]; /* all of them */
};

static inline void gpu_print_line(void *context, int rank, bool is_error, const char *text,
                                  size_t count)
{
    (void)context, (void)is_error;
    if (rank > 0 && count >= 2 && !strncmp(text, "ok", 2))
        return; /* once is enough */
    if (rank > 0)
        printf("[%d] ", rank);
    printf("%.*s\n", (int)count, text);
    fflush(stdout);
}

/* How many ranks this machine has GPUs for; leaves the program as skipped below two. */
static inline int gpu_rank_count(void)
{
    int count = 0;
    if (erg_cuda_count(&count, &gpu_error) || count < 2) {
        printf("skipped: no two GPUs here\n");
        exit(GPU_SKIPPED);
    }
    return count >= 8 ? 8 : count >= 4 ? 4 : 2;
}

/* Runs this program as `ranks` ranks with one argument (NULL for none); its exit status. */
static inline int gpu_run_ranks(int ranks, const char *argument)
{
    const char *command[] = {"/proc/self/exe", argument, NULL};
    struct erg_launch_job job = {
        .ranks = ranks, .command = command, .timeout_s = 600, .line = gpu_print_line};
    if (erg_launch_run(&job, &gpu_error) == 0)
        return 0;
    printf("%s\n", gpu_error.message);
    return (int)gpu_error.status;
}

/* Whether this process is one of several ranks. */
static inline bool gpu_is_rank(struct gpu_world *world)
{
    *world = (struct gpu_world){0};
    gpu_ok(erg_launch_environment_read(&world->env, &gpu_error));
    return world->env.world > 1;
}

static inline void gpu_meet(struct gpu_world *world)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int r = 0; r < world->env.world && r < ERG_COLLECTIVE_MOST_RANKS; r++)
        world->ranks[r] = r;
    int gpus;
    gpu_ok(erg_cuda_count(&gpus, &gpu_error));
    gpu_ok(erg_cuda_init(&world->cuda, world->env.local_rank % gpus, &gpu_error));
    gpu_ok(erg_rendezvous_open(&world->rendezvous, &world->env, 60, &gpu_error));
    if (world->env.rank == 0)
        printf("%d ranks on %s\n", world->env.world, world->cuda.name);
}

/* A group of `count` ranks of the world, from rank `first` on. World call. */
static inline struct erg_collective *gpu_connect(struct gpu_world *world, int first, int count,
                                                 enum erg_collective_method method,
                                                 double timeout_s)
{
    struct erg_collective *collective;
    struct erg_collective_options options = {.env = &world->env,
                                             .rendezvous = world->rendezvous,
                                             .ranks = world->ranks + first,
                                             .rank_count = count,
                                             .method = method,
                                             .timeout_s = timeout_s};
    gpu_ok(erg_collective_open(&collective, &options, &gpu_error));
    return collective;
}

#endif
