/* The rules between a job's keys: each broken one is a sentence with file, line and key. */
#include "job/job_internal.h"

#include "base/log.h"
#include "base/memory.h"
#include "hardware/cluster_schema.h"
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys whose numbers must lie in a range, independent of other keys. */
static int check_ranges(const struct erg_job_file *file, const struct erg_yaml *yaml,
                        struct erg_error *err)
{
    const struct erg_yaml_range ranges[] = {
        {"vocabulary", file->vocabulary, 1, 1e8},
        {"tensor", (double)file->layout.tensor, 1, 1024},
        {"context", (double)file->layout.context, 1, 1024},
        {"pipeline", (double)file->layout.pipeline, 1, 1024},
        {"data", (double)file->layout.data, 1, 1e6},
        {"virtual_stages", (double)file->layout.virtual_stages, 1, 1024},
        {"fsdp", (double)file->layout.fsdp, 1, 1e6},
        {"expert", (double)file->layout.expert, 1, 1e5},
        {"expert_capacity", file->layout.expert_capacity, 0.1, 100},
        {"microbatch_size", (double)file->layout.microbatch, 1, 1e4},
        {"microbatches", (double)file->layout.microbatches, 1, ERG_JOB_MOST_MICROBATCHES},
        {"sequence", (double)file->layout.sequence, 1, 1e8},
        {"offload", file->layout.offload, 0, 1},
        {"search.budget", file->search.budget, 1, 1e6},
        {"search.start", file->search.start, 1, 1e6},
        {"search.batch", file->search.batch, 1, 1e6},
        {"search.sweep_clocks", file->search.sweep_clocks, 0, 1000},
        {"profiler.window_s", file->profiler.window_s, 0.01, 3600},
        {"profiler.cooldown_s", file->profiler.cooldown_s, 0, 3600},
        {"profiler.warmup_s", file->profiler.warmup_s, 0, 3600},
        {"deadline_s", file->deadline_s, 1e-6, 1e6},
        {"budget_j", file->budget_j, 1e-6, 1e15},
    };
    return erg_yaml_check_ranges(yaml, ranges, sizeof ranges / sizeof *ranges, false, err);
}

/* The keys of the layout that the file leaves open. */
static void find_open(struct erg_job *job, const struct erg_job_file *file,
                      const struct erg_yaml *yaml)
{
    const bool of_stages = file->layers || file->layers_word || file->stage_recompute ||
                           file->stage_offload || file->stage_gpus;
    job->open = (struct erg_job_open){
        .tensor = !erg_yaml_has(yaml, "tensor"),
        .context = !erg_yaml_has(yaml, "context"),
        .pipeline = !erg_yaml_has(yaml, "pipeline") && !of_stages,
        .data = !erg_yaml_has(yaml, "data"),
        .virtual_stages = !erg_yaml_has(yaml, "virtual_stages") &&
                          !erg_yaml_has(yaml, "schedule") && !file->layers && !file->layers_word,
        .microbatch = !erg_yaml_has(yaml, "microbatch_size"),
        .microbatches = !erg_yaml_has(yaml, "microbatches"),
        .recompute = !erg_yaml_has(yaml, "recompute") && !file->stage_recompute,
        .offload = !erg_yaml_has(yaml, "offload") && !file->stage_offload,
        .stages = !of_stages,
    };
}

/* In any layout, the size and the number of microbatches and data ranks that are left open follow
 * from the batch. */
static int fill_microbatches(struct erg_job *job, const struct erg_job_file *file,
                             const struct erg_yaml *yaml, bool any_layout, struct erg_error *err)
{
    const struct erg_job_open *open = &job->open;
    struct erg_layout *layout = &job->layout;
    const char *key = open->microbatch ? "microbatch_size" : "microbatches";
    const long batch = file->train ? file->train->batch : 0;
    if (!open->microbatch && !open->microbatches) {
        if (any_layout && open->data && batch > layout->microbatch * layout->microbatches)
            layout->data = batch / (layout->microbatch * layout->microbatches);
        return 0;
    }
    if (!any_layout)
        return erg_yaml_fail(yaml, key, err,
                             "the key is missing; expected a number, which only ergon train --auto "
                             "and ergon layout choose");
    if (batch < 1)
        return erg_yaml_fail(yaml, key, err,
                             "the key is missing; expected a number, or the key 'train.batch', the "
                             "sequences of a step, to choose it by");
    if (open->microbatch)
        layout->microbatch = 1;
    if (!open->microbatches) {
        layout->microbatch = batch / layout->microbatches / layout->data;
        layout->microbatch += layout->microbatch < 1;
    } else {
        layout->microbatches = batch / layout->microbatch / layout->data;
        layout->microbatches += layout->microbatches < 1;
    }
    return 0; /* the batch is checked with the key `train` */
}

/* Sequences of an iteration, on all copies. */
static int check_batch(const struct erg_job *job, const struct erg_yaml *yaml,
                       struct erg_error *err)
{
    const double batch = (double)job->layout.microbatch * (double)job->layout.microbatches *
                         (double)job->layout.data;
    if (batch <= ERG_JOB_MOST_BATCH)
        return 0;
    return erg_yaml_fail(
        yaml, "microbatches", err,
        "%ld microbatches of %ld sequences on %ld data ranks are a batch of %.10g, "
        "expected at most %d",
        job->layout.microbatches, job->layout.microbatch, job->layout.data, batch,
        ERG_JOB_MOST_BATCH);
}

/* The failure of each load gets the line of the key that names it. */
static int load_names(struct erg_job *job, const struct erg_job_file *file,
                      const struct erg_yaml *yaml, const char *path, struct erg_error *err)
{
    struct erg_error inner = {0};
    char *model = erg_job_model_path(path, file->model);
    char *stack = erg_job_relative_to(path, file->stack ? file->stack : "ergon");
    int result = 0;
    if (erg_model_load(&job->model, model, &inner) != 0)
        result = erg_yaml_fail(yaml, "model", err, "%.700s", inner.message);
    else if (erg_stack_load(&job->stack, stack, &inner) != 0)
        result = erg_yaml_fail(yaml, "stack", err, "%.700s", inner.message);
    free(model);
    free(stack);
    return result == 0 ? erg_job_load_kinds(job, file, yaml, err) : result;
}

static int apply_lora(struct erg_model *model, const struct erg_job_lora *lora,
                      const struct erg_yaml *yaml, struct erg_error *err)
{
    if (erg_yaml_check_range(yaml, "lora.rank", lora->rank, 1, (double)model->hidden, err) != 0)
        return -1;
    model->lora.rank = lora->rank;
    for (unsigned i = 0; i < lora->targets_count; i++) {
        const unsigned bit = 1u << lora->targets[i];
        char key[32];
        snprintf(key, sizeof key, "lora.targets[%u]", i);
        if (model->lora.targets & bit)
            return erg_yaml_fail(yaml, key, err, "'%s' is listed twice",
                                 erg_lora_target_names[lora->targets[i]]);
        model->lora.targets |= bit;
    }
    return 0;
}

static int apply_to_model(struct erg_job *job, const struct erg_job_file *file,
                          const struct erg_yaml *yaml, struct erg_error *err)
{
    if (erg_yaml_has(yaml, "tie_embeddings"))
        job->model->tied = file->tie_embeddings;
    if (file->lora && apply_lora(job->model, file->lora, yaml, err) != 0)
        return -1;
    if (!file->vocabulary)
        return 0;
    if (file->vocabulary < job->model->vocab)
        return erg_yaml_fail(yaml, "vocabulary", err,
                             "expected at least the %ld words that %s has (padding only), got %d",
                             job->model->vocab, job->model->name, file->vocabulary);
    job->model->words = erg_model_words(job->model);
    job->model->vocab = file->vocabulary;
    job->model->vocab_is_padded = true;
    return 0;
}

/* A vocabulary that the tensor degree does not divide gets the rows that every layout gives it. */
static void pad_vocabulary(struct erg_job *job, const struct erg_yaml *yaml)
{
    long padded = erg_model_padded_vocabulary(job->model, job->layout.tensor);
    if (job->model->vocab % job->layout.tensor == 0)
        return;
    erg_log(ERG_LOG_INFO,
            "%s:%zu: the vocabulary of %ld words is padded to %ld, for a tensor degree of %ld",
            job->path, erg_yaml_line(yaml, "tensor"), job->model->vocab, padded,
            job->layout.tensor);
    job->model->words = erg_model_words(job->model);
    job->model->vocab = padded;
}

static int check_degrees(struct erg_job *job, const struct erg_yaml *yaml, struct erg_error *err)
{
    struct erg_error inner = {0};
    pad_vocabulary(job, yaml);
    if (erg_model_check_tensor(job->model, job->layout.tensor, &inner) != 0)
        return erg_yaml_fail(yaml, "tensor", err, "%.700s", inner.message);
    if (erg_model_check_sequence(job->model, 1, job->layout.sequence, &inner) != 0)
        return erg_yaml_fail(yaml, "sequence", err, "%.700s", inner.message);
    if (erg_model_check_sequence(job->model, job->layout.context, job->layout.sequence, &inner) !=
        0)
        return erg_yaml_fail(yaml, "context", err, "%.700s", inner.message);
    if (erg_layout_check_sharding(&job->layout, &inner) != 0)
        return erg_yaml_fail(yaml, "fsdp", err, "%.700s", inner.message);
    if (erg_layout_check_lora(job->model, &inner) != 0)
        return erg_yaml_fail(yaml, "lora", err, "%.700s", inner.message);
    if (erg_layout_check_experts(&job->layout, job->model, &inner) != 0)
        return erg_yaml_fail(yaml, erg_yaml_has(yaml, "expert") ? "expert" : "model", err, "%.700s",
                             inner.message);
    return erg_job_check_nodes(job, yaml, err);
}

int erg_job_check_whole(const struct erg_job *job, const char *who, struct erg_error *err)
{
    if (erg_lora_is_on(job->model))
        return erg_fail(err, ERG_USAGE,
                        "%s: key 'lora': %s trains all weights, not adapters; expected no such key "
                        "(only ergon layout and ergon memory support it)",
                        job->path, who);
    if (!erg_layout_is_sharded(&job->layout))
        return 0;
    return erg_fail(err, ERG_USAGE,
                    "%s: key 'fsdp': %s does not shard weights and gradients, got %ld; expected no "
                    "such key (only ergon layout and ergon memory support it)",
                    job->path, who, job->layout.fsdp);
}

/* Whether all GPUs that stages lie on have an engine, one that offloads where that is asked for. */
static bool has_engines(const struct erg_job *job, bool offloads)
{
    bool all = true;
    for (int s = 0; s < job->layout.pipeline; s++) {
        const struct erg_engine *engine = job->kinds[job->stage_kind[s]].engine;
        all &= engine && (!offloads || engine->host_link_bandwidth > 0);
    }
    return all;
}

/* Whether the job's engines are ergon for all stages. */
static bool trains_itself(const struct erg_job *job, const struct erg_job_file *file)
{
    bool all = true;
    for (int s = 0; s < job->layout.pipeline; s++) {
        const struct erg_engine *engine = job->kinds[job->stage_kind[s]].engine;
        all &= engine ? engine->static_memory : file->train != NULL;
    }
    return all;
}

/* The engine gives the cost of copies to host memory; without an engine the cost is not needed. */
static int check_offload(const struct erg_job *job, const struct erg_job_file *file,
                         const struct erg_yaml *yaml, struct erg_error *err)
{
    const char *key = job->layout.stage_offload ? "stage_offload" : "offload";
    if (!(job->layout.offload > 0) || trains_itself(job, file))
        return 0;
    if (job->layout.pipeline < 3)
        return erg_yaml_fail(yaml, key, err,
                             "offloading hides its copies behind the microbatches of other stages "
                             "and needs at least 3 pipeline stages, got %ld",
                             job->layout.pipeline);
    if (!has_engines(job, true))
        return erg_yaml_fail(
            yaml, key, err,
            "the cost of copies to host memory depends on the engine; expected the key 'engine' "
            "with one that offloads, for example megatron-kwai-h800");
    return 0;
}

/* A list of a stage's own settings: as many as stages, in place of the key for all. */
static int check_list(const struct erg_job *job, const struct erg_yaml *yaml, const char *key,
                      const char *for_all, unsigned count, struct erg_error *err)
{
    if (erg_yaml_has(yaml, for_all))
        return erg_yaml_fail(yaml, key, err, "%s was given, too; expected one of them", for_all);
    if (count != (unsigned)job->layout.pipeline)
        return erg_yaml_fail(yaml, key, err, "expected %ld entries, one for each stage, got %u",
                             job->layout.pipeline, count);
    return 0;
}

static int choose_stage_recompute(struct erg_job *job, const struct erg_job_file *file,
                                  const struct erg_yaml *yaml, struct erg_error *err)
{
    bool differ = false;
    if (!file->stage_recompute)
        return 0;
    if (check_list(job, yaml, "stage_recompute", "recompute", file->stage_recompute_count, err))
        return -1;
    for (int i = 0; i < job->layout.pipeline; i++)
        differ |= file->stage_recompute[i] != file->stage_recompute[0];
    job->layout.recompute = differ ? ERG_RECOMPUTE_NONE : file->stage_recompute[0];
    if (!differ)
        return 0;
    if (!has_engines(job, false) && !trains_itself(job, file))
        return erg_yaml_fail(yaml, "stage_recompute", err,
                             "the cost of stages that recompute differently depends on the engine; "
                             "expected the key 'engine', for example megatron-kwai-h800");
    size_t bytes = (size_t)job->layout.pipeline * sizeof *job->layout.stage_recompute;
    job->layout.stage_recompute = memcpy(erg_xmalloc(bytes), file->stage_recompute, bytes);
    return 0;
}

static int choose_stage_offload(struct erg_job *job, const struct erg_job_file *file,
                                const struct erg_yaml *yaml, struct erg_error *err)
{
    bool differ = false;
    if (!file->stage_offload)
        return 0;
    if (check_list(job, yaml, "stage_offload", "offload", file->stage_offload_count, err) != 0)
        return -1;
    for (int i = 0; i < job->layout.pipeline; i++) {
        char key[48];
        snprintf(key, sizeof key, "stage_offload[%d]", i);
        if (erg_yaml_check_range(yaml, key, file->stage_offload[i], 0, 1, err) != 0)
            return -1;
        differ |= file->stage_offload[i] != file->stage_offload[0];
        job->layout.offload = fmax(job->layout.offload, file->stage_offload[i]);
    }
    if (!differ)
        return 0;
    size_t bytes = (size_t)job->layout.pipeline * sizeof *job->layout.stage_offload;
    job->layout.stage_offload = memcpy(erg_xmalloc(bytes), file->stage_offload, bytes);
    return 0;
}

static int check_schedule(struct erg_job *job, const struct erg_job_file *file,
                          const struct erg_yaml *yaml, struct erg_error *err)
{
    const enum erg_schedule_kind schedule = erg_layout_schedule(&job->layout);
    if (erg_yaml_has(yaml, "schedule") && file->schedule != schedule)
        return erg_yaml_fail(yaml, "schedule", err,
                             file->schedule == ERG_SCHEDULE_1F1B
                                 ? "1f1b has one virtual stage per stage, but virtual_stages is %ld"
                                 : "interleaved needs virtual_stages of at least 2, got %ld",
                             job->layout.virtual_stages);
    if (schedule == ERG_SCHEDULE_1F1B)
        return 0;
    if (job->layout.pipeline < 2)
        return erg_yaml_fail(yaml, "virtual_stages", err,
                             "virtual stages interleave the stages of a pipeline, but pipeline is "
                             "1");
    return 0;
}

/*
 * Even shares; remaining layers go to the middle chunks first, since the first also embeds and the
 * last also has the head.
 */
static void split_evenly(long *layers, long chunks, long total)
{
    long left = total % chunks;
    for (long i = 0; i < chunks; i++)
        layers[i] = total / chunks;
    for (long i = 1; i + 1 < chunks && left > 0; i++, left--)
        layers[i]++;
    layers[0] += left; /* at most 1 */
}

static int alternate(long *layers, const struct erg_job *job, const struct erg_yaml *yaml,
                     struct erg_error *err)
{
    const struct erg_layout *layout = &job->layout;
    if (layout->virtual_stages > 1)
        return erg_yaml_fail(yaml, "layers", err,
                             "%s is for stages of one chunk, got %ld virtual stages",
                             erg_layout_alternating, layout->virtual_stages);
    if (!erg_layout_alternate(layers, job->model->layers, layout->pipeline))
        return erg_yaml_fail(yaml, "layers", err,
                             "%s leaves a stage without layers, of the %ld of %s over %ld stages",
                             erg_layout_alternating, job->model->layers, job->model->name,
                             layout->pipeline);
    return 0;
}

static int split_layers(struct erg_job *job, const struct erg_job_file *file,
                        const struct erg_yaml *yaml, struct erg_error *err)
{
    const long chunks = job->layout.pipeline * job->layout.virtual_stages;
    if (job->model->layers < chunks)
        return erg_yaml_fail(yaml, "pipeline", err,
                             "%s has %ld layers, too few for %ld x %ld stages", job->model->name,
                             job->model->layers, job->layout.pipeline, job->layout.virtual_stages);
    if (!file->layers && !file->layers_word && job->model->layers % chunks == 0)
        return 0;
    long *layers = erg_xcalloc((size_t)chunks, sizeof *layers);
    job->layout.chunk_layers = layers;
    if (file->layers_word)
        return alternate(layers, job, yaml, err);
    if (!file->layers) {
        split_evenly(layers, chunks, job->model->layers);
        return 0;
    }
    if (file->layers_count != (unsigned)chunks)
        return erg_yaml_fail(
            yaml, "layers", err, "expected %ld entries (pipeline %ld x virtual_stages %ld), got %u",
            chunks, job->layout.pipeline, job->layout.virtual_stages, file->layers_count);
    long sum = 0;
    for (long i = 0; i < chunks; i++) {
        char key[32];
        snprintf(key, sizeof key, "layers[%ld]", i);
        if (erg_yaml_check_range(yaml, key, file->layers[i], 1, (double)job->model->layers, err))
            return -1;
        layers[i] = file->layers[i];
        sum += file->layers[i];
    }
    if (sum != job->model->layers)
        return erg_yaml_fail(yaml, "layers", err,
                             "the stages hold %ld layers together, but %s has %ld", sum,
                             job->model->name, job->model->layers);
    return 0;
}

static int choose_goal(struct erg_job *job, const struct erg_job_file *file,
                       const struct erg_yaml *yaml, struct erg_error *err)
{
    static const char *const keys[] = {"goal", "deadline_s", "budget_j"};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!erg_yaml_has(yaml, keys[i]))
            continue;
        if (first)
            return erg_yaml_fail(yaml, keys[i], err,
                                 "this contradicts the key '%s'; expected one of goal, deadline_s "
                                 "and budget_j",
                                 first);
        first = keys[i];
    }
    job->goal = (struct erg_goal){.objective = file->goal};
    if (file->deadline_s > 0)
        job->goal = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = file->deadline_s};
    else if (file->budget_j > 0)
        job->goal = (struct erg_goal){ERG_FASTEST, .energy_j = file->budget_j};
    return 0;
}

static void choose_name(struct erg_job *job, const struct erg_job_file *file, const char *path)
{
    struct erg_text name = {0};
    const char *slash = strrchr(path, '/');
    erg_text_add_printable(&name, file->name ? file->name : slash ? slash + 1 : path);
    char *dot = file->name ? NULL : strrchr(name.data, '.');
    if (dot && dot != name.data)
        *dot = '\0';
    job->name = job->own_name = name.data;
}

/* Keys that are used as they are read, and the defaults of absent keys. */
static void copy_plain(struct erg_job *job, const struct erg_job_file *file,
                       const struct erg_yaml *yaml)
{
    struct erg_layout *layout = &job->layout;
    struct erg_job_profiler *profiler = &job->profiler;
    const struct {
        const char *key;
        long *value;
    } degrees[] = {{"tensor", &layout->tensor},
                   {"context", &layout->context},
                   {"pipeline", &layout->pipeline},
                   {"data", &layout->data},
                   {"virtual_stages", &layout->virtual_stages}};
    const struct {
        const char *key;
        double *value;
    } times[] = {{"profiler.window_s", &profiler->window_s},
                 {"profiler.cooldown_s", &profiler->cooldown_s},
                 {"profiler.warmup_s", &profiler->warmup_s}};
    job->cluster = file->cluster;
    job->layout = file->layout;
    job->search = file->search;
    job->profiler = file->profiler;
    job->offload_line = erg_yaml_line(yaml, "offload");
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++)
        if (!erg_yaml_has(yaml, degrees[i].key))
            *degrees[i].value = 1;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (!erg_yaml_has(yaml, times[i].key))
            *times[i].value = -1;
    if (!erg_yaml_has(yaml, "search.sweep_clocks"))
        job->search.sweep_clocks = -1;
}

int erg_job_resolve(struct erg_job *job, struct erg_job_file *file, const struct erg_yaml *yaml,
                    const char *path, const struct erg_job_overrides *overrides,
                    struct erg_error *err)
{
    const bool any_layout = overrides->any_layout;
    if (check_ranges(file, yaml, err) != 0 ||
        erg_cluster_finish(&file->cluster, yaml, "cluster", err) != 0)
        return -1;
    copy_plain(job, file, yaml);
    find_open(job, file, yaml);
    if (fill_microbatches(job, file, yaml, any_layout && !overrides->own_degrees, err) != 0 ||
        check_batch(job, yaml, err) != 0)
        return -1;
    job->path = erg_xstrdup(path);
    choose_name(job, file, path);
    if (load_names(job, file, yaml, path, err) != 0 || apply_to_model(job, file, yaml, err) != 0 ||
        erg_job_place_stages(job, file, yaml, any_layout, err) != 0 ||
        choose_stage_recompute(job, file, yaml, err) != 0 ||
        choose_stage_offload(job, file, yaml, err) != 0 ||
        ((!any_layout || (overrides->own_degrees && job->placed)) &&
         check_degrees(job, yaml, err) != 0) ||
        (!any_layout && (check_offload(job, file, yaml, err) != 0 ||
                         erg_job_check_engines(job, yaml, err) != 0)) ||
        check_schedule(job, file, yaml, err) != 0 || split_layers(job, file, yaml, err) != 0 ||
        choose_goal(job, file, yaml, err) != 0 ||
        (file->train && erg_job_check_training(job, file->train, yaml, err) != 0))
        return -1;
    job->training = file->train;
    for (size_t k = 0; k < job->kind_count; k++)
        if (job->kinds[k].engine)
            erg_job_apply_training(job, job->kinds[k].engine);
    job->even_microbatch = job->layout.microbatch % 2 == 0;
    if (any_layout)
        return 0;
    /* A job that trains logs messages about plans only at level info. */
    enum erg_log_level of_plans = job->training ? ERG_LOG_INFO : ERG_LOG_WARNING;
    if (job->layout.data > 1)
        erg_log(of_plans,
                "%s:%zu: the reduction of gradients between the %ld copies is not part of an "
                "iteration: its times and energies are those of one copy",
                path, erg_yaml_line(yaml, "data"), job->layout.data);
    if (job->layout.offload > 0 && has_engines(job, true))
        erg_log(of_plans,
                "%s:%zu: copies to host memory slow compute by the engine %s; waiting for the "
                "first of them is not modelled",
                path, erg_yaml_line(yaml, job->layout.stage_offload ? "stage_offload" : "offload"),
                job->kind_count > 1 ? "of each GPU" : job->engine->name);
    if (job->search.prior != ERG_JOB_NO_PRIOR && job->search.method != ERG_SEARCH_GP) {
        erg_log(ERG_LOG_WARNING, "%s:%zu: only the search gp takes a prior; this one has none",
                path, erg_yaml_line(yaml, "search.prior"));
        job->search.prior = ERG_JOB_NO_PRIOR;
    }
    if (!job->even_microbatch)
        erg_log(of_plans,
                "%s:%zu: a microbatch of %ld cannot be split in two equal halves, so communication "
                "is not overlapped: only sequential execution is planned",
                path, erg_yaml_line(yaml, "microbatch_size"), job->layout.microbatch);
    return 0;
}
