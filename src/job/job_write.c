/* A job as a file again, with another layout. */
#define _XOPEN_SOURCE 700 /* realpath */

#include "job/job_internal.h"

#include "base/text.h"
#include "hardware/cluster_schema.h"
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_string(struct erg_text *out, const char *key, const char *value)
{
    erg_text_printf(out, "%s: ", key);
    erg_yaml_add_string(out, value);
    erg_text_add(out, "\n");
}

/* A name of the catalogue is written unchanged, a path as an absolute one, so that the file works
 * from any folder. `relative` is to be freed. */
static void add_path(struct erg_text *out, const char *key, const char *name, char *relative)
{
    char *whole = erg_job_is_path(relative) ? realpath(relative, NULL) : NULL;
    add_string(out, key, whole ? whole : name);
    free(whole);
    free(relative);
}

static void add_name(struct erg_text *out, const char *key, const char *name, const char *path)
{
    add_path(out, key, name, erg_job_relative_to(path, name));
}

/* So many of a cluster's nodes as its first GPUs lie on. `first` and `others` are what lines begin
 * with. */
static void add_nodes(struct erg_text *out, const char *path, const struct erg_cluster *cluster,
                      long gpus, const char *first, const char *others)
{
    const long per_node = cluster->gpus_per_node, nodes = (gpus + per_node - 1) / per_node;
    erg_text_printf(out, "%snodes: %ld\n%sgpus_per_node: %ld\n", first, nodes, others, per_node);
    if (gpus < nodes * per_node)
        erg_text_printf(out, "%sgpus_used: %ld\n", others, gpus);
    erg_text_add(out, others);
    add_name(out, "gpu", cluster->gpu, path);
    if (cluster->chassis) {
        erg_text_add(out, others);
        add_name(out, "chassis", cluster->chassis, path);
    }
    for (const struct erg_quantity *number = erg_cluster_numbers; number->key; number++) {
        double value = *(const double *)(const void *)((const char *)cluster + number->offset);
        if (value > 0)
            erg_text_printf(out, "%s%s: %.10g\n", others, number->key, value / number->factor);
    }
}

/* The nodes that stages lie on: the first of them as the cluster's own, with the job's engine. */
static void add_cluster(struct erg_text *out, const struct erg_job *job,
                        const struct erg_job_change *change)
{
    const struct erg_layout *layout = change->layout;
    const struct erg_cluster *cluster = change->cluster ? change->cluster : &job->cluster;
    const struct erg_job_file *file = job->file;
    const char *path = change->cluster ? "" : job->path; /* that its names are relative to */
    const char *engine = NULL, *engine_path = path;
    size_t written = 0;
    for (size_t k = 0; k <= cluster->more_count; k++) {
        const struct erg_cluster *nodes = k ? &cluster->more[k - 1] : cluster;
        long gpus = 0;
        for (long s = 0; s < layout->pipeline; s++)
            if (change->stage_kind[s] == k)
                gpus += layout->tensor * layout->context * layout->data;
        if (gpus == 0)
            continue;
        const char *trains = k ? nodes->engine : change->engine ? change->engine : file->engine;
        erg_text_add(out, written == 0 ? "cluster:\n" : written == 1 ? "  more_nodes:\n" : "");
        add_nodes(out, path, nodes, gpus, written ? "    - " : "  ", written ? "      " : "  ");
        if (written++ == 0) {
            engine = trains;
            engine_path = k ? path : change->engine ? "" : job->path;
        } else if (trains) {
            erg_text_add(out, "      ");
            add_name(out, "engine", trains, path);
        }
    }
    if (file->stack)
        add_name(out, "stack", file->stack, job->path);
    if (engine)
        add_name(out, "engine", engine, engine_path);
    for (long s = 0; written > 1 && s < layout->pipeline; s++) {
        erg_text_add(out, s ? ", " : "stage_gpus: [");
        erg_yaml_add_string(out, change->kind_gpus[change->stage_kind[s]]);
        erg_text_add(out, s + 1 < layout->pipeline ? "" : "]\n");
    }
}

void erg_job_write_number(struct erg_text *out, double value)
{
    char text[32];
    double read = NAN;
    for (int digits = 4; digits <= 17 && read != value; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        erg_parse_double(text, &read);
    }
    erg_text_add(out, text);
}

static void add_offload(struct erg_text *out, const struct erg_layout *layout)
{
    if (!(layout->offload > 0))
        return;
    erg_text_add(out, layout->stage_offload ? "stage_offload: [" : "offload: ");
    for (long i = 0; layout->stage_offload && i < layout->pipeline; i++) {
        erg_text_add(out, i ? ", " : "");
        erg_job_write_number(out, layout->stage_offload[i]);
    }
    if (!layout->stage_offload)
        erg_job_write_number(out, layout->offload);
    erg_text_add(out, layout->stage_offload ? "]\n" : "\n");
}

void erg_job_write_layout(struct erg_text *out, const struct erg_layout *layout)
{
    erg_text_printf(
        out, "tensor: %ld\ncontext: %ld\npipeline: %ld\ndata: %ld\nvirtual_stages: %ld\n",
        layout->tensor, layout->context, layout->pipeline, layout->data, layout->virtual_stages);
    if (erg_layout_is_sharded(layout))
        erg_text_printf(out, "fsdp: %ld\n", layout->fsdp);
    if (erg_layout_experts(layout) > 1)
        erg_text_printf(out, "expert: %ld\n", layout->expert);
    if (layout->expert_capacity > 0) {
        erg_text_add(out, "expert_capacity: ");
        erg_job_write_number(out, layout->expert_capacity);
        erg_text_add(out, "\n");
    }
    if (layout->chunk_layers) {
        erg_text_add(out, "layers: [");
        for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
            erg_text_printf(out, "%s%ld", i ? ", " : "", layout->chunk_layers[i]);
        erg_text_add(out, "]\n");
    }
    erg_text_printf(out, "microbatch_size: %ld\nmicrobatches: %ld\nsequence: %ld\n",
                    layout->microbatch, layout->microbatches, layout->sequence);
    const bool differ = strcmp(erg_layout_recompute_name(layout), "stages") == 0;
    if (!differ)
        erg_text_printf(out, "recompute: %s\n", erg_layout_recompute_name(layout));
    for (long i = 0; differ && i < layout->pipeline; i++)
        erg_text_printf(out, "%s%s%s", i ? ", " : "stage_recompute: [",
                        erg_recompute_name(erg_layout_recompute(layout, i)),
                        i + 1 < layout->pipeline ? "" : "]\n");
    add_offload(out, layout);
}

void erg_job_write(struct erg_text *out, const struct erg_job *job,
                   const struct erg_job_change *change)
{
    const struct erg_job_file *file = job->file;
    add_string(out, "name", file->name ? file->name : job->name);
    add_path(out, "model", file->model, erg_job_model_path(job->path, file->model));
    erg_text_printf(out, "tie_embeddings: %s\nvocabulary: %ld\n",
                    job->model->tied ? "true" : "false", change->vocabulary);
    add_cluster(out, job, change);
    erg_job_write_layout(out, change->layout);
    if (file->lora) {
        erg_text_printf(out, "lora:\n  rank: %d\n  targets: [", file->lora->rank);
        for (unsigned i = 0; i < file->lora->targets_count; i++)
            erg_text_printf(out, "%s%s", i ? ", " : "",
                            erg_lora_target_names[file->lora->targets[i]]);
        erg_text_add(out, "]\n");
    }
    if (job->training)
        erg_job_write_training(out, job);
}
