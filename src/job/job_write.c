/* A job as a file again, with another layout. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "job/job_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name of a catalogue as it is; a path so that it holds from any folder. */
static void add_name(struct erg_text *out, const char *key, const char *name, const char *path)
{
    char *relative = erg_job_relative_to(path, name);
    char *whole = strchr(relative, '/') ? realpath(relative, NULL) : NULL;
    erg_text_printf(out, "%s: %s\n", key, whole ? whole : name);
    free(whole);
    free(relative);
}

/* As few nodes as hold the GPUs, with equally many on each where that is possible. */
static void add_cluster(struct erg_text *out, const struct erg_job *job,
                        const struct erg_cluster *cluster, long gpus)
{
    long per_node = cluster->gpus_per_node, nodes = (gpus + per_node - 1) / per_node;
    if (gpus % nodes == 0)
        per_node = gpus / nodes;
    erg_text_printf(out, "cluster:\n  nodes: %ld\n  gpus_per_node: %ld\n  ", nodes, per_node);
    add_name(out, "gpu", cluster->gpu, job->path);
    if (cluster->intra_node_bandwidth > 0)
        erg_text_printf(out, "  intra_node_bandwidth_gb_s: %.10g\n",
                        cluster->intra_node_bandwidth / 1e9);
    if (cluster->inter_node_bandwidth > 0)
        erg_text_printf(out, "  inter_node_bandwidth_gb_s: %.10g\n",
                        cluster->inter_node_bandwidth / 1e9);
    if (cluster->inter_node_latency_s > 0)
        erg_text_printf(out, "  inter_node_latency_us: %.10g\n",
                        cluster->inter_node_latency_s * 1e6);
    if (cluster->host_memory_bytes > 0)
        erg_text_printf(out, "  host_memory_gib: %.10g\n", cluster->host_memory_bytes / 0x1p30);
    if (cluster->host_memory_bandwidth > 0)
        erg_text_printf(out, "  host_memory_bandwidth_gb_s: %.10g\n",
                        cluster->host_memory_bandwidth / 1e9);
    if (cluster->shared_link_bandwidth > 0)
        erg_text_printf(out, "  shared_link_bandwidth_gb_s: %.10g\n",
                        cluster->shared_link_bandwidth / 1e9);
}

static void add_layout(struct erg_text *out, const struct erg_job_layout *layout)
{
    erg_text_printf(
        out, "tensor: %ld\ncontext: %ld\npipeline: %ld\ndata: %ld\nvirtual_stages: %ld\n",
        layout->tensor, layout->context, layout->pipeline, layout->data, layout->virtual_stages);
    if (layout->chunk_layers) {
        erg_text_add(out, "layers: [");
        for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
            erg_text_printf(out, "%s%ld", i ? ", " : "", layout->chunk_layers[i]);
        erg_text_add(out, "]\n");
    }
    erg_text_printf(out, "microbatch_size: %ld\nmicrobatches: %ld\nsequence: %ld\n",
                    layout->microbatch, layout->microbatches, layout->sequence);
    if (!layout->stage_recompute)
        erg_text_printf(out, "recompute: %s\n", erg_job_recompute_name(layout->recompute));
    for (long i = 0; layout->stage_recompute && i < layout->pipeline; i++)
        erg_text_printf(out, "%s%s%s", i ? ", " : "stage_recompute: [",
                        erg_job_recompute_name(layout->stage_recompute[i]),
                        i + 1 < layout->pipeline ? "" : "]\n");
    if (layout->offload > 0 && !layout->stage_offload)
        erg_text_printf(out, "offload: %.4f\n", layout->offload);
    for (long i = 0; layout->offload > 0 && layout->stage_offload && i < layout->pipeline; i++)
        erg_text_printf(out, "%s%.4f%s", i ? ", " : "stage_offload: [", layout->stage_offload[i],
                        i + 1 < layout->pipeline ? "" : "]\n");
}

void erg_job_write(struct erg_text *out, const struct erg_job *job,
                   const struct erg_job_layout *layout)
{
    const struct erg_job_file *file = job->file;
    long gpus = layout->tensor * layout->context * layout->pipeline * layout->data;
    if (file->name)
        erg_text_printf(out, "name: %s\n", file->name);
    add_name(out, "model", file->model, job->path);
    erg_text_printf(out, "tie_embeddings: %s\nvocabulary: %ld\n",
                    job->model->tied ? "true" : "false", layout->vocabulary);
    add_cluster(out, job, layout->cluster ? layout->cluster : &job->cluster, gpus);
    if (file->stack)
        add_name(out, "stack", file->stack, job->path);
    if (file->engine)
        add_name(out, "engine", file->engine, job->path);
    add_layout(out, layout);
}
