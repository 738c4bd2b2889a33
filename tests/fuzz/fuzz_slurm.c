/* libFuzzer: any bytes as an answer of Slurm: of jobs, nodes, and a configuration. Doubtful jobs
 * have nothing, all others only GPUs that their nodes have. */
#include "cluster/live/slurm_read.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static char a40[] = "a40", h100[] = "h100";
static struct erg_gpu_type types[] = {
    {.name = a40, .nodes = 2, .gpus_per_node = 4},
    {.name = h100, .nodes = 2, .gpus_per_node = 64, .first_node = 2},
};
static const struct erg_fleet fleet = {.types = types, .types_count = 2, .nodes = 4, .gpus = 136};
static const char *const names[] = {"a1", "a2", "h1", "h2"};

static void check_job(struct erg_slurm_job *job)
{
    const struct erg_placement *placement = &job->job.placement;
    if (job->job.id == 0 || (job->doubtful && (placement->count || job->job.token[0])) ||
        (job->job.token[0] && strlen(job->job.token) != ERG_TOKEN_LENGTH))
        abort();
    uint64_t nodes = 0;
    for (int i = 0; i < placement->count; i++) {
        struct erg_slice slice = placement->slices[i];
        if (slice.node < 0 || slice.node > 3 || slice.gpus == 0 || nodes >> slice.node & 1 ||
            (slice.node < 2 && slice.gpus > 15))
            abort();
        nodes |= UINT64_C(1) << slice.node;
    }
    erg_placement_release(&job->job.placement);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *text = erg_xmemdup((const char *)data, size);
    const char *rest = text, *record;
    size_t length;
    struct erg_slurm_nodes nodes;
    struct erg_arena arena = {0};
    struct erg_slurm_node node;
    struct erg_slurm_job job;
    erg_slurm_nodes_make(&nodes, &fleet, names);
    while (erg_slurm_next_job(&rest, &record, &length))
        if (erg_slurm_read_job(&job, &nodes, "ergon", record, length, &arena))
            check_job(&job);
    rest = text;
    while (erg_slurm_next_node(&rest, &node, &nodes, &arena))
        if (node.node < -1 || node.node > 3)
            abort();
    erg_slurm_value(text, "KillWait", &arena);
    erg_slurm_nodes_release(&nodes);
    erg_arena_release(&arena);
    free(text);
    return 0;
}
