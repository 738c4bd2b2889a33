/* The starts of a run: writes them when it begins, and reads them for the conditions of its log. */
#define _DEFAULT_SOURCE /* strsep, gethostname */

#include "train/log/run_session.h"

#include "ergon/ergon.h"
#include "io/field_table.h"
#include "io/file.h"
#include "train/log/run_log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char erg_run_sessions_name[] = "sessions.jsonl";

enum { SCHEMA_VERSION = 1 };
static const char schema[] = "ergon.session";

/* ---- the fields of a line ---- */

/* Products of any of these are exact. */
#define MOST_DEGREE 1e4
#define MOST_COUNT 1e6
#define MOST_TOKENS 1e8
/* clang-format off */
#define T struct erg_run_session
#define BANDWIDTH(name, member)                                                                    \
    DOUBLE(name, cluster.member, RANGE(0, DBL_MAX))

VALUE(counts, long, .type = ERG_FIELD_LONG, RANGE(0, MOST_COUNT));
VALUE(shares, double, .type = ERG_FIELD_DOUBLE, RANGE(0, 1));
VALUE(recomputes, enum erg_recompute, .type = ERG_FIELD_NAME, .names = erg_recompute_names);
TABLE(layout, T,
    LONG("tensor", layout.tensor, RANGE(1, MOST_DEGREE)),
    LONG("context", layout.context, RANGE(1, MOST_DEGREE)),
    LONG("pipeline", layout.pipeline, RANGE(1, MOST_DEGREE)),
    LONG("data", layout.data, RANGE(1, MOST_DEGREE)),
    LONG("virtual_stages", layout.virtual_stages, RANGE(1, MOST_DEGREE)),
    LONG("microbatch_size", layout.microbatch, RANGE(1, MOST_COUNT)),
    LONG("microbatches", layout.microbatches, RANGE(1, MOST_COUNT)),
    LONG("sequence", layout.sequence, RANGE(1, MOST_TOKENS)),
    NAME("recompute", layout.recompute, erg_recompute_names),
    DOUBLE("offload", layout.offload, RANGE(0, 1)),
    LIST_OR_NONE("layers", layout.chunk_layers, layer_count, counts),
    LIST_OR_NONE("stage_recompute", layout.stage_recompute, recompute_count, recomputes),
    LIST_OR_NONE("stage_offload", layout.stage_offload, offload_count, shares));
TABLE(cluster, T,
    LONG("nodes", cluster.nodes, RANGE(1, MOST_COUNT)),
    LONG("gpus_per_node", cluster.gpus_per_node, RANGE(1, MOST_COUNT)),
    TEXT("gpu", cluster.gpu),
    BANDWIDTH("intra_node_bandwidth", intra_node_bandwidth),
    BANDWIDTH("inter_node_bandwidth", inter_node_bandwidth),
    BANDWIDTH("host_memory_bandwidth", host_memory_bandwidth),
    BANDWIDTH("shared_link_bandwidth", shared_link_bandwidth),
    LONG("adapters_per_node", cluster.adapters_per_node, UNKNOWN(1, 1024)));
TABLE(model, T,
    TEXT("name", model),
    TEXT("config", config),
    BOOL("tied", tied),
    LONG("vocabulary", vocabulary, RANGE(1, MOST_TOKENS)),
    LONG("words", words, RANGE(1, MOST_TOKENS)));
TABLE(session, T,
    LONG("behind", behind, RANGE(0, 9e15)),
    DOUBLE("time_unix_s", time_unix_s, RANGE(0, DBL_MAX)),
    TEXT("ergon_version", ergon_version),
    TEXT("host", host),
    TEXT("device", device),
    TEXT("type", type),
    LONG("ranks", ranks, RANGE(1, 1e9)),
    LONG("kinds", kinds, RANGE(1, MOST_COUNT)),
    BOOL("sequence_parallel", sequence_parallel),
    TEXT_OR_NONE("plan_method", plan_method),
    LONG("plan_point", plan_point, UNKNOWN(1, 1e9)),
    GROUP("layout", layout),
    GROUP("cluster", cluster),
    GROUP("model", model));
#undef T
/* clang-format on */

/* ---- writing ---- */

/* The cluster's GPU, by a name that is valid in any folder. */
static char *gpu_of(const struct erg_job *job)
{
    const char *name = job->cluster.gpu;
    bool is_file = strchr(name, '/') || (strlen(name) > 5 && !strcmp(strchr(name, 0) - 5, ".yaml"));
    char *path = is_file ? erg_job_file_path(job, name) : erg_xstrdup(name);
    char *whole = is_file ? realpath(path, NULL) : NULL;
    if (whole)
        free(path);
    return whole ? whole : path;
}

static void describe(struct erg_run_session *session, const struct erg_run_about *about,
                     double time_unix_s)
{
    const struct erg_job *job = about->job;
    const struct erg_layout *layout = &job->layout;
    const struct erg_cluster *cluster = &job->cluster;
    const size_t stages = (size_t)layout->pipeline;
    *session = (struct erg_run_session){
        .behind = (long)about->step,
        .time_unix_s = time_unix_s,
        .ergon_version = erg_version(),
        .device = about->device,
        .type = about->type,
        .ranks = (long)about->ranks,
        .kinds = (long)job->kind_count,
        .sequence_parallel = job->training->sequence_parallel,
        .plan_method = about->expected.plan ? about->expected.method : NULL,
        .plan_point = about->expected.plan ? (long)about->expected.point : 0,
        .layout = *layout,
        .cluster = {.nodes = cluster->nodes,
                    .gpus_per_node = cluster->gpus_per_node,
                    .intra_node_bandwidth = cluster->intra_node_bandwidth,
                    .inter_node_bandwidth = cluster->inter_node_bandwidth,
                    .host_memory_bandwidth = cluster->host_memory_bandwidth,
                    .shared_link_bandwidth = cluster->shared_link_bandwidth,
                    .adapters_per_node = (long)cluster->adapters_per_node},
        .model = job->model->name,
        .tied = job->model->tied,
        .vocabulary = job->model->vocab,
        .words = erg_model_words(job->model),
        .layer_count = layout->chunk_layers ? stages * (size_t)layout->virtual_stages : 0,
        .recompute_count = layout->stage_recompute ? stages : 0,
        .offload_count = layout->stage_offload ? stages : 0,
    };
}

/* Adds the complete lines of a text. */
static void keep_whole_lines(struct erg_text *out, char *text)
{
    for (char *rest = text, *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *object = json_loads(line, 0, NULL);
        if (json_is_object(object))
            erg_text_printf(out, "%s\n", line);
        json_decref(object);
    }
}

int erg_run_session_add(const struct erg_run_about *about, double time_unix_s,
                        struct erg_error *err)
{
    struct erg_run_session session;
    struct erg_text lines = {0};
    char host[256] = "", *config = NULL, *gpu = gpu_of(about->job), *before = NULL;
    char *path = erg_file_path(about->folder, erg_run_sessions_name);
    describe(&session, about, time_unix_s);
    gethostname(host, sizeof host - 1);
    session.host = host;
    session.cluster.gpu = gpu;
    int result = about->job->model->path ? erg_file_read(about->job->model->path,
                                                         ERG_FILE_SMALL_BYTES, &config, NULL, err)
                                         : 0;
    session.config = config ? config : "";
    if (about->step > 0 && access(path, F_OK) == 0 && result == 0)
        result = erg_file_read(path, 0, &before, NULL, err);
    if (result == 0) {
        if (before)
            keep_whole_lines(&lines, before);
        json_t *document =
            erg_json_pack("{s:s, s:i}", "schema", schema, "schema_version", SCHEMA_VERSION);
        json_t *fields = erg_fields_json(&session_fields, &session);
        json_object_update(document, fields);
        char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
        erg_text_printf(&lines, "%s\n", text);
        free(text);
        json_decref(fields);
        json_decref(document);
        result = erg_file_write(path, lines.data, lines.count, err);
    }
    erg_text_release(&lines);
    free(before);
    free(config);
    free(gpu);
    free(path);
    return result;
}

/* ---- reading ---- */

static int check_lists(const struct erg_run_session *session, const struct erg_json_place *root,
                       struct erg_error *err)
{
    const struct erg_layout *layout = &session->layout;
    const double chunks = (double)layout->pipeline * (double)layout->virtual_stages;
    if (layout->chunk_layers && (double)session->layer_count != chunks)
        return erg_json_fail(root, "layout.layers", err, "expected %.10g entries, got %zu", chunks,
                             session->layer_count);
    if (layout->stage_recompute && (long)session->recompute_count != layout->pipeline)
        return erg_json_fail(root, "layout.stage_recompute", err, "expected %ld entries, got %zu",
                             layout->pipeline, session->recompute_count);
    if (layout->stage_offload && (long)session->offload_count != layout->pipeline)
        return erg_json_fail(root, "layout.stage_offload", err, "expected %ld entries, got %zu",
                             layout->pipeline, session->offload_count);
    return 0;
}

static int read_line(struct erg_run_sessions *sessions, const char *name, const char *line,
                     struct erg_error *err)
{
    struct erg_run_session session = {0};
    struct erg_json_place root;
    json_t *document = NULL;
    const char *kind;
    long version;
    int result = erg_json_open(&root, &document, name, line, strlen(line), err) ||
                         erg_json_string(&root, "schema", &kind, err) ||
                         erg_json_long(&root, "schema_version", 1, INT32_MAX, &version, err)
                     ? -1
                     : 0;
    if (result == 0 && (strcmp(kind, schema) != 0 || version != SCHEMA_VERSION))
        result = erg_json_fail(&root, "schema", err, "expected %s of version %d, got %s of %ld",
                               schema, SCHEMA_VERSION, kind, version);
    if (result == 0)
        result = erg_fields_read(&session_fields, &root, &session, &sessions->arena, err) ||
                         check_lists(&session, &root, err)
                     ? -1
                     : 0;
    json_decref(document);
    if (result == 0)
        ERG_PUSH(sessions, items, session);
    return result;
}

int erg_run_sessions_parse(struct erg_run_sessions *sessions, const char *name, const char *text,
                           struct erg_error *err)
{
    char *copy = erg_xstrdup(text);
    struct erg_error first = {0};
    *sessions = (struct erg_run_sessions){0};
    for (char *rest = copy, *line; (line = strsep(&rest, "\n")) != NULL;) {
        struct erg_error own;
        if (!*line || read_line(sessions, name, line, &own) == 0)
            continue;
        if (sessions->left_out++ == 0)
            first = own;
    }
    free(copy);
    if (sessions->count)
        return 0;
    return sessions->left_out ? erg_fail(err, ERG_FAILED, "%s", first.message)
                              : erg_fail(err, ERG_FAILED,
                                         "%s: the file is empty; expected a line for each start of "
                                         "the run",
                                         name);
}

void erg_run_sessions_release(struct erg_run_sessions *sessions)
{
    free(sessions->items);
    erg_arena_release(&sessions->arena);
    *sessions = (struct erg_run_sessions){0};
}

size_t erg_run_sessions_find(const struct erg_run_sessions *sessions, double step)
{
    for (size_t i = sessions->count; i > 0; i--)
        if ((double)sessions->items[i - 1].behind < step)
            return i - 1;
    return sessions->count;
}

static bool same_lists(const struct erg_run_session *a, const struct erg_run_session *b)
{
    const struct erg_layout *x = &a->layout, *y = &b->layout;
    return a->layer_count == b->layer_count && a->recompute_count == b->recompute_count &&
           a->offload_count == b->offload_count &&
           (!a->layer_count || memcmp(x->chunk_layers, y->chunk_layers,
                                      a->layer_count * sizeof *x->chunk_layers) == 0) &&
           (!a->recompute_count || memcmp(x->stage_recompute, y->stage_recompute,
                                          a->recompute_count * sizeof *x->stage_recompute) == 0) &&
           (!a->offload_count || memcmp(x->stage_offload, y->stage_offload,
                                        a->offload_count * sizeof *x->stage_offload) == 0);
}

static bool same_plan(const struct erg_run_session *a, const struct erg_run_session *b)
{
    return !a->plan_method == !b->plan_method && a->plan_point == b->plan_point &&
           (!a->plan_method || !strcmp(a->plan_method, b->plan_method));
}

bool erg_run_sessions_are_alike(const struct erg_run_session *a, const struct erg_run_session *b)
{
    const struct erg_layout *x = &a->layout, *y = &b->layout;
    return !strcmp(a->device, b->device) && !strcmp(a->type, b->type) &&
           !strcmp(a->config, b->config) && a->tied == b->tied && a->vocabulary == b->vocabulary &&
           a->sequence_parallel == b->sequence_parallel && x->tensor == y->tensor &&
           x->context == y->context && x->pipeline == y->pipeline && x->data == y->data &&
           x->virtual_stages == y->virtual_stages && x->microbatch == y->microbatch &&
           x->microbatches == y->microbatches && x->sequence == y->sequence &&
           x->recompute == y->recompute && x->offload == y->offload && same_lists(a, b) &&
           same_plan(a, b);
}
