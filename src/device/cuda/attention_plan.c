/*
 * Shapes of attention, and plans for them: found by cuDNN's heuristics once, then kept as files.
 *
 * A plan's file is one line with the plan's inputs, one line with a checksum, then cuDNN's own JSON
 * form, which contains the machine code of the kernels: cuDNN would not notice a wrong bit in a
 * plan, which must never run.
 */
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "device/cuda/attention_internal.h"
#include "io/file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CONFIGURATIONS = 16,
    WORKSPACE_SLACK_BYTES = 1 << 20,
    PLAN_FILE_LIMIT_BYTES = 64 << 20, /* about 100 KB in practice */
    GRAPH_REVISION = 1, /* increase it when the graphs change, to invalidate old plans */
};

/* ---- shapes ---- */

struct erg_attention_shape erg_attention_packed(int64_t batch, int64_t query_heads,
                                                int64_t kv_heads, int64_t head_dim, int64_t tokens)
{
    int64_t row = (query_heads + 2 * kv_heads) * head_dim, row_o = query_heads * head_dim;
    struct erg_attention_strides packed = {tokens * row, row, head_dim};
    return (struct erg_attention_shape){
        .batch = batch,
        .query_heads = query_heads,
        .kv_heads = kv_heads,
        .head_dim = head_dim,
        .queries = tokens,
        .keys = tokens,
        .mask = ERG_MASK_CAUSAL,
        .q = packed,
        .kv = packed,
        .o = {tokens * row_o, row_o, head_dim},
    };
}

static bool strides_fit(const struct erg_attention_strides *s)
{
    return s->batch > 0 && s->token > 0 && s->head > 0 && s->batch % 8 == 0 && s->token % 8 == 0 &&
           s->head % 8 == 0;
}

int erg_attention_check_shape(const struct erg_attention_shape *s, struct erg_error *err)
{
    if (s->batch < 1 || s->query_heads < 1 || s->kv_heads < 1 || s->head_dim < 1 ||
        s->queries < 1 || s->keys < 1 || s->queries > INT32_MAX || s->keys > INT32_MAX)
        return erg_fail(err, ERG_FAILED,
                        "planning attention of batch %" PRId64 ", heads %" PRId64 "/%" PRId64
                        " of %" PRId64 ", tokens %" PRId64 "/%" PRId64
                        ": expected positive numbers",
                        s->batch, s->query_heads, s->kv_heads, s->head_dim, s->queries, s->keys);
    if (s->query_heads % s->kv_heads != 0)
        return erg_fail(err, ERG_FAILED,
                        "planning attention: %" PRId64 " query heads cannot share %" PRId64
                        " key/value heads, expected a multiple",
                        s->query_heads, s->kv_heads);
    if (s->mask == ERG_MASK_CAUSAL_LAST && s->keys < s->queries)
        return erg_fail(err, ERG_FAILED,
                        "planning attention: the last %" PRId64 " queries of %" PRId64
                        " keys, expected no more queries than keys",
                        s->queries, s->keys);
    if (!strides_fit(&s->q) || !strides_fit(&s->kv) || !strides_fit(&s->o))
        return erg_fail(err, ERG_FAILED,
                        "planning attention: a stride is not a positive multiple of 8 elements, "
                        "which cuDNN's 16-byte accesses need");
    return 0;
}

/* ---- plans ---- */

static const char *const pass_names[] = {"forward", "backward"};

/*
 * The workspace of the fused kernels, which reveals an unrecognised graph: that needs memory for
 * the scores.
 */
static int64_t expected_bytes(const struct erg_cudnn *cudnn, const struct erg_attention_shape *s,
                              enum erg_attention_pass pass)
{
    int64_t row_bytes = 4 * s->batch * s->query_heads * s->head_dim, bytes = 0;
    if (pass == ERG_ATTENTION_FORWARD)
        return 0;
    if (s->query_heads != s->kv_heads) /* dK, dV of each query head in bf16, before their sums */
        bytes += row_bytes * s->keys;
    if (s->repeatable) /* dS in bf16 */
        bytes += 2 * s->batch * s->query_heads * s->queries * s->keys;
    if (!cudnn->is_hopper) /* the older kernels have a second fp32 dQ */
        bytes += row_bytes * s->queries;
    return bytes;
}

static int read_workspace(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                          const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                          struct erg_error *err)
{
    int64_t count = 0, limit = expected_bytes(cudnn, shape, pass) + WORKSPACE_SLACK_BYTES;
    if (erg_cudnn_get(cudnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                      1, &count, &plan->workspace_bytes, err) != 0)
        return -1;
    if (plan->workspace_bytes < 0 || plan->workspace_bytes > limit)
        return erg_fail(err, ERG_NO_DEVICE,
                        "the plan needs a workspace of %" PRId64 " bytes, expected at most %" PRId64
                        ": cuDNN has not recognised the graph as fused attention",
                        plan->workspace_bytes, limit);
    return 0;
}

/* The inputs that determine a plan, in one line; the caller frees it. */
static char *plan_key(const struct erg_cudnn *cudnn, const struct erg_attention_shape *s,
                      enum erg_attention_pass pass)
{
    struct erg_text key = {0};
    erg_text_printf(&key,
                    "ergon attention %s, graph %d, %s, batch %" PRId64 ", heads %" PRId64
                    "/%" PRId64 " of %" PRId64 ", tokens %" PRId64 "/%" PRId64 ", mask %d",
                    pass_names[pass], GRAPH_REVISION, cudnn->identity, s->batch, s->query_heads,
                    s->kv_heads, s->head_dim, s->queries, s->keys, (int)s->mask);
    const struct erg_attention_strides *strides[] = {&s->q, &s->kv, &s->o};
    for (size_t i = 0; i < 3; i++)
        erg_text_printf(&key, ", %" PRId64 " %" PRId64 " %" PRId64, strides[i]->batch,
                        strides[i]->token, strides[i]->head);
    if (s->repeatable)
        erg_text_add(&key, ", repeatable");
    return key.data;
}

/* The file of a plan; NULL: plans are not stored. */
static char *plan_path(const struct erg_cudnn *cudnn, const char *key, enum erg_attention_pass pass)
{
    if (!cudnn->plan_folder)
        return NULL;
    struct erg_text path = {0};
    erg_text_printf(&path, "%s/attention-%s-%016" PRIx64 ".plan", cudnn->plan_folder,
                    pass_names[pass], erg_hash_text(key));
    return path.data;
}

static void plan_header(struct erg_text *header, const char *key, const char *json)
{
    erg_text_printf(header, "%s\n%016" PRIx64 "\n", key, erg_hash_text(json));
}

static int make_plan(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                     struct erg_error *err)
{
    return erg_cudnn_make(cudnn, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan->plan, err) ||
                   erg_cudnn_set(cudnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                 CUDNN_TYPE_HANDLE, 1, &cudnn->handle, err)
               ? -1
               : 0;
}

static int make_from_json(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                          const char *json, struct erg_error *err)
{
    return make_plan(plan, cudnn, err) ||
                   erg_cudnn_set(cudnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)strlen(json), json, err) ||
                   erg_cudnn_finalize(cudnn, plan->plan, "reading a plan for attention", err)
               ? -1
               : 0;
}

static int load(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                const char *path, const char *key, struct erg_error *err)
{
    char *text;
    if (erg_file_read(path, PLAN_FILE_LIMIT_BYTES, &text, NULL, err) != 0)
        return -1;
    char *end_of_key = strchr(text, '\n');
    char *end_of_sum = end_of_key ? strchr(end_of_key + 1, '\n') : NULL;
    const char *json = end_of_sum ? end_of_sum + 1 : "";
    struct erg_text header = {0};
    plan_header(&header, key, json);
    int result = -1;
    if (strncmp(text, header.data, header.count) != 0)
        erg_fail(err, ERG_FAILED, "reading '%s': not a plan for %s, or damaged", path, key);
    else if (make_from_json(plan, cudnn, json, err) == 0)
        result = read_workspace(plan, cudnn, shape, pass, err);
    erg_text_release(&header);
    free(text);
    if (result != 0)
        erg_cudnn_destroy(cudnn, &plan->plan);
    return result;
}

static int save(const struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                const char *path, const char *key, struct erg_error *err)
{
    int64_t count = 0;
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    if (erg_dir_make(cudnn->plan_folder, err) != 0 ||
        erg_cudnn_get(cudnn, plan->plan, name, CUDNN_TYPE_CHAR, 0, &count, NULL, err) != 0)
        return -1;
    char *json = erg_xcalloc((size_t)count + 1, 1);
    struct erg_text file = {0};
    int result = erg_cudnn_get(cudnn, plan->plan, name, CUDNN_TYPE_CHAR, count, &count, json, err);
    if (result == 0) {
        plan_header(&file, key, json);
        erg_text_add(&file, json);
        result = erg_file_write(path, file.data, file.count, err);
    }
    erg_text_release(&file);
    free(json);
    return result;
}

static int make_from_configuration(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                                   const struct erg_attention_shape *shape,
                                   enum erg_attention_pass pass,
                                   cudnnBackendDescriptor_t configuration, struct erg_error *err)
{
    int result =
        make_plan(plan, cudnn, err) ||
                erg_cudnn_set(cudnn, plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration, err) ||
                erg_cudnn_finalize(cudnn, plan->plan, "building a plan for attention", err) ||
                read_workspace(plan, cudnn, shape, pass, err)
            ? -1
            : 0;
    if (result != 0)
        erg_cudnn_destroy(cudnn, &plan->plan);
    return result;
}

/* Heuristic mode A lists the best plan first; it ignores SM counts. */
static int ask_heuristics(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                          const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                          const struct erg_attention_graph *graph,
                          cudnnBackendDescriptor_t *heuristics,
                          cudnnBackendDescriptor_t configurations[MAX_CONFIGURATIONS],
                          struct erg_error *err)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    if (erg_cudnn_make(cudnn, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, heuristics, err) ||
        erg_cudnn_set(cudnn, *heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->graph, err) ||
        erg_cudnn_set(cudnn, *heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                      &mode, err) ||
        erg_cudnn_finalize(cudnn, *heuristics, "asking cuDNN how to compute attention", err))
        return -1;
    for (size_t i = 0; i < MAX_CONFIGURATIONS; i++)
        if (erg_cudnn_make(cudnn, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configurations[i], err))
            return -1;
    int64_t count = 0;
    if (erg_cudnn_get(cudnn, *heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                      CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGURATIONS, &count, configurations,
                      err))
        return -1;
    if (count <= 0)
        return erg_fail(err, ERG_NO_DEVICE, "cuDNN has no kernel for this shape on this GPU");
    for (int64_t i = 0; i < count; i++) {
        if (make_from_configuration(plan, cudnn, shape, pass, configurations[i], err) == 0)
            return 0;
        if (err)
            erg_log(ERG_LOG_DEBUG, "attention %s: choice %" PRId64 " of cuDNN: %s",
                    pass_names[pass], i, err->message);
    }
    return -1;
}

static int find_new(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                    const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                    struct erg_error *err)
{
    struct erg_attention_graph graph;
    cudnnBackendDescriptor_t heuristics = NULL, configurations[MAX_CONFIGURATIONS] = {NULL};
    int result = erg_attention_graph_build(&graph, cudnn, shape, pass, err);
    if (result == 0)
        result = ask_heuristics(plan, cudnn, shape, pass, &graph, &heuristics, configurations, err);
    for (size_t i = 0; i < MAX_CONFIGURATIONS; i++)
        erg_cudnn_destroy(cudnn, &configurations[i]);
    erg_cudnn_destroy(cudnn, &heuristics);
    erg_attention_graph_release(&graph, cudnn);
    return result;
}

int erg_attention_plan_find(struct erg_attention_plan *plan, const struct erg_cudnn *cudnn,
                            const struct erg_attention_shape *shape, enum erg_attention_pass pass,
                            struct erg_error *err)
{
    char *key = plan_key(cudnn, shape, pass);
    char *path = plan_path(cudnn, key, pass);
    struct erg_error why;
    bool kept = path && load(plan, cudnn, shape, pass, path, key, &why) == 0;
    int result = 0;
    if (!kept) {
        if (path)
            erg_log(ERG_LOG_DEBUG, "attention: looking for a new plan (%s)", why.message);
        result = find_new(plan, cudnn, shape, pass, err);
        if (result != 0)
            erg_fail_context(err, "%s", key);
        else if (path && save(plan, cudnn, path, key, &why) != 0)
            erg_log(ERG_LOG_DEBUG, "attention: the plan is not stored (%s)", why.message);
    }
    free(path);
    free(key);
    return result;
}
