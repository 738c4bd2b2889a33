/* Memory of a layout, and the change that would make it fit, as JSON. */
#include "layout/document/memory_document.h"

#include "base/text.h"
#include "io/json.h"
#include "layout/memory/static_memory.h"

#include <math.h>

/* ---- binding stages ---- */

const struct erg_gpu *erg_memory_answer_gpu(const struct erg_memory_answer *answer, long stage)
{
    return answer->job->kinds[answer->stage_kind[stage]].gpu;
}

bool erg_memory_answer_is_mixed(const struct erg_memory_answer *answer)
{
    bool mixed = false;
    for (long s = 1; s < answer->request.layout->pipeline; s++)
        mixed |= answer->stage_kind[s] != answer->stage_kind[0];
    return mixed;
}

double erg_memory_answer_host_bytes(const struct erg_memory_answer *answer, long stage)
{
    const struct erg_memory_stage *needs = &answer->result->stages[stage];
    return needs->host_bytes * (double)answer->rooms[stage].node_gpus;
}

void erg_memory_answer_gpus(struct erg_text *out, const struct erg_memory_answer *answer)
{
    const struct erg_layout *layout = answer->request.layout;
    const char *comma = "";
    for (size_t k = 0; k < answer->job->kind_count; k++) {
        long stages = 0;
        for (long s = 0; s < layout->pipeline; s++)
            stages += answer->stage_kind[s] == k;
        if (!stages)
            continue;
        erg_text_printf(out, "%s%ld %s", comma,
                        stages * layout->tensor * layout->context * layout->data,
                        answer->job->kinds[k].gpu->name);
        comma = ", ";
    }
}

void erg_memory_answer_judge(struct erg_memory_answer *answer)
{
    const struct erg_memory_result *result = answer->result;
    const double slack = answer->solution ? answer->solution->excess_bytes : 0;
    double most = -INFINITY, host_most = -INFINITY;
    for (long s = 0; s < result->count; s++) {
        const struct erg_memory_room *room = &answer->rooms[s];
        double excess = result->stages[s].peak_bytes - room->gpu_bytes;
        double host = erg_memory_answer_host_bytes(answer, s) - room->host_bytes;
        if (room->host_bytes == 0)
            host -= 0x1p62; /* hosts without a bound have more room than any node */
        if (excess > most) {
            most = excess;
            answer->binding = s;
        }
        if (host > host_most) {
            host_most = host;
            answer->host_binding = s;
        }
    }
    answer->fits = most <= slack;
    answer->host_fits = host_most <= 0;
}

/* ---- the document ---- */

json_t *erg_memory_needed(double bytes)
{
    const double rounding = 1e-3; /* rounding of sums of about 1e11 */
    return json_integer((json_int_t)ceil(bytes - rounding));
}

static json_t *whole(double bytes)
{
    return json_integer((json_int_t)llround(bytes));
}

static void set(json_t *object, const char *key, json_t *value)
{
    json_object_set_new(object, key, value);
}

static json_t *layout_document(const struct erg_memory_answer *answer,
                               const struct erg_layout *layout)
{
    json_t *document = erg_json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "tensor", (json_int_t)layout->tensor,
        "context", (json_int_t)layout->context, "pipeline", (json_int_t)layout->pipeline,
        "virtual_stages", (json_int_t)layout->virtual_stages, "data", (json_int_t)layout->data,
        "microbatch", (json_int_t)layout->microbatch, "microbatches",
        (json_int_t)layout->microbatches, "sequence", (json_int_t)layout->sequence, "vocabulary",
        (json_int_t)erg_layout_vocabulary(answer->request.model, layout->tensor));
    if (erg_layout_is_sharded(layout))
        set(document, "fsdp", json_integer(layout->fsdp));
    if (answer->request.model->experts.count)
        set(document, "expert", json_integer(erg_layout_experts(layout)));
    return document;
}

/* Columns with one entry per pass, without items that are always 0. */
static json_t *course_document(const struct erg_memory_course *course)
{
    json_t *passes = json_array(), *chunks = json_array(), *microbatches = json_array();
    json_t *items = json_object();
    for (size_t k = 0; k < course->count; k++) {
        const struct erg_memory_step *step = &course->steps[k];
        json_array_append_new(passes, erg_json_new_string(step->backward ? "backward" : "forward"));
        json_array_append_new(chunks, json_integer(step->chunk));
        json_array_append_new(microbatches, json_integer(step->microbatch));
    }
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++) {
        json_t *column = json_array();
        bool there = false;
        for (size_t k = 0; k < course->count; k++) {
            double bytes = (double)course->steps[k].items[i];
            json_array_append_new(column, whole(bytes));
            there |= bytes > 0;
        }
        if (there)
            set(items, erg_memory_item_name((enum erg_memory_item)i), column);
        else
            json_decref(column);
    }
    return erg_json_pack("{s:o, s:o, s:o, s:o}", "pass", passes, "chunk", chunks, "microbatch",
                         microbatches, "bytes", items);
}

static json_t *passes_document(const struct erg_memory_stage_traffic *traffic)
{
    json_t *passes = json_array(), *chunks = json_array(), *microbatches = json_array();
    json_t *starts = json_array(), *ends = json_array();
    for (size_t i = 0; i < traffic->pass_count; i++) {
        const struct erg_memory_pass_time *pass = &traffic->passes[i];
        json_array_append_new(passes, erg_json_new_string(pass->backward ? "backward" : "forward"));
        json_array_append_new(chunks, json_integer(pass->chunk));
        json_array_append_new(microbatches, json_integer(pass->microbatch));
        json_array_append_new(starts, erg_json_number(pass->start_s));
        json_array_append_new(ends, erg_json_number(pass->end_s));
    }
    return erg_json_pack("{s:o, s:o, s:o, s:o, s:o}", "pass", passes, "chunk", chunks, "microbatch",
                         microbatches, "start_s", starts, "end_s", ends);
}

/* Columns, one entry per transfer; null where a kind lacks the column. */
static json_t *transfers_document(const struct erg_memory_stage_traffic *traffic)
{
    static const char *const keys[] = {"kind", "pass",          "chunk", "microbatch", "layer",
                                       "peer", "between_nodes", "bytes", "start_s",    "end_s"};
    enum { KEYS = sizeof keys / sizeof *keys };
    json_t *document = json_object(), *columns[KEYS];
    for (int key = 0; key < KEYS; key++)
        set(document, keys[key], columns[key] = json_array());
    for (size_t i = 0; i < traffic->count; i++) {
        const struct erg_memory_transfer *transfer = &traffic->items[i];
        bool message = transfer->peer >= 0;
        json_t *values[KEYS] = {
            erg_json_new_string(erg_memory_transfer_name(transfer->kind)),
            message ? erg_json_new_string(transfer->backward ? "backward" : "forward")
                    : json_null(),
            json_integer(transfer->chunk),
            json_integer(transfer->microbatch),
            transfer->layer >= 0 ? json_integer(transfer->layer) : json_null(),
            message ? json_integer(transfer->peer) : json_null(),
            message ? json_boolean(transfer->between_nodes) : json_null(),
            json_integer(transfer->bytes),
            erg_json_number(transfer->start_s),
            erg_json_number(transfer->end_s),
        };
        for (int key = 0; key < KEYS; key++)
            json_array_append_new(columns[key], values[key]);
    }
    return document;
}

/* Every buffer that is allocated at the start of training, in order of address. */
static json_t *buffers_document(const struct erg_memory_request *request,
                                const struct erg_memory_sizes *sizes, long index)
{
    struct erg_static_memory memory;
    json_t *buffers = json_array();
    erg_static_memory_of(&memory, request, sizes, index);
    for (int i = 0; i < ERG_STATIC_SETS * ERG_STATIC_BUFFERS; i++) {
        const enum erg_static_buffer buffer = (enum erg_static_buffer)(i % ERG_STATIC_BUFFERS);
        const enum erg_static_set set = memory.sets[buffer];
        const size_t count = memory.counts[set];
        if ((int)set != i / ERG_STATIC_BUFFERS || !count || !memory.bytes[buffer])
            continue;
        json_array_append_new(
            buffers,
            erg_json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", erg_static_name(buffer), "item",
                          erg_memory_item_name(erg_static_item(&memory, buffer)), "count",
                          (json_int_t)count, "bytes", (json_int_t)memory.bytes[buffer], "offset",
                          (json_int_t)erg_static_offset(&memory, buffer, 0)));
    }
    return buffers;
}

static json_t *stage_document(const struct erg_memory_answer *answer, long index)
{
    const struct erg_memory_request *request = &answer->request;
    const struct erg_layout *layout = request->layout;
    const struct erg_memory_stage *stage = &answer->result->stages[index];
    struct erg_memory_sizes sizes;
    struct erg_memory_stage closed;
    erg_memory_sizes_of(&sizes, request->model, layout);
    erg_memory_closed(&closed, request, &sizes, index);
    json_t *items = json_object(), *document = json_object(), *chunks = json_array();
    for (int i = 0; i < ERG_MEMORY_ITEMS; i++)
        set(items, erg_memory_item_name((enum erg_memory_item)i), whole(stage->items[i]));
    long layers = erg_layout_stage_layers(layout, request->model->layers, index);
    for (long chunk = 0; chunk < layout->virtual_stages; chunk++)
        json_array_append_new(chunks, json_integer(erg_layout_chunk_layers(
                                          layout, request->model->layers, index, chunk)));
    set(document, "stage", json_integer(index));
    set(document, "layers", json_integer(layers));
    set(document, "chunk_layers", chunks);
    set(document, "recompute",
        erg_json_new_string(erg_recompute_name(erg_layout_recompute(layout, index))));
    set(document, "offload", erg_json_number(erg_layout_offload(layout, index)));
    set(document, "offloaded", erg_json_number(stage->offload));
    set(document, "gpu", erg_json_new_string(erg_memory_answer_gpu(answer, index)->name));
    set(document, "budget_bytes", whole(answer->rooms[index].gpu_bytes));
    set(document, "peak_bytes", whole(stage->peak_bytes));
    set(document, "closed_form_bytes", erg_memory_needed(closed.peak_bytes));
    set(document, "moment", erg_json_new_string(stage->moment));
    set(document, "items", items);
    if (request->accounting == ERG_MEMORY_STATIC)
        set(document, "buffers", buffers_document(request, &sizes, index));
    set(document, "groups", json_integer(stage->groups));
    set(document, "group_offload_bytes", whole(stage->offload_bytes));
    set(document, "host_bytes", whole(stage->host_bytes));
    if (answer->traffic) {
        const struct erg_memory_stage_traffic *traffic = &answer->traffic->stages[index];
        set(document, "copy_wait_s", erg_json_number(traffic->copy_wait_s));
        set(document, "passes", passes_document(traffic));
        set(document, "transfers", transfers_document(traffic));
    }
    set(document, "course", course_document(&answer->result->courses[index]));
    return document;
}

static json_t *solution_document(const struct erg_memory_solution *solution)
{
    json_t *stages = json_array();
    for (long i = 0; i < solution->count; i++)
        json_array_append_new(
            stages, erg_json_pack("{s:f, s:s}", "offload", solution->stage_offload[i], "recompute",
                                  erg_recompute_name(solution->stage_recompute[i])));
    const bool one = !isnan(solution->offload);
    return erg_json_pack("{s:o, s:o, s:I, s:I, s:o}", "offload", erg_json_number(solution->offload),
                         "offload_bytes", one ? whole(solution->offload_bytes) : json_null(),
                         "stage_offload_bytes", (json_int_t)solution->stage_offload_bytes,
                         "excess_bytes", (json_int_t)solution->excess_bytes, "stages", stages);
}

static json_t *change_document(const struct erg_memory_answer *answer)
{
    const struct erg_memory_change *change = answer->change;
    const struct erg_layout *layout = &change->layout;
    json_t *document =
        erg_json_pack("{s:s, s:f, s:o}", "recompute", erg_recompute_name(layout->recompute),
                      "offload", layout->offload, "layout", layout_document(answer, layout));
    if (change->chunk_layers) {
        json_t *layers = json_array();
        for (long i = 0; i < layout->pipeline * layout->virtual_stages; i++)
            json_array_append_new(layers, json_integer(change->chunk_layers[i]));
        set(document, "layers", layers);
    }
    return document;
}

json_t *erg_memory_document(const struct erg_memory_answer *answer)
{
    const struct erg_memory_request *request = &answer->request;
    const struct erg_memory_result *result = answer->result;
    const struct erg_memory_stage *worst = &result->stages[answer->binding];
    json_t *document = json_object(), *stages = json_array();
    struct erg_text gpus = {0};
    double closed = 0, most = -INFINITY;
    for (long i = 0; i < result->count; i++) {
        json_t *stage = stage_document(answer, i);
        double own = json_number_value(json_object_get(stage, "closed_form_bytes"));
        double excess = own - answer->rooms[i].gpu_bytes;
        if (excess > most) {
            most = excess;
            closed = own;
        }
        json_array_append_new(stages, stage);
    }
    erg_memory_answer_gpus(&gpus, answer);
    set(document, "schema", erg_json_new_string("ergon.memory"));
    set(document, "schema_version", json_integer(1));
    set(document, "job", erg_json_new_string(answer->job->name));
    set(document, "model", erg_json_new_string(request->model->name));
    erg_lora_add_document(document, request->model);
    set(document, "gpu",
        erg_json_new_string(erg_memory_answer_is_mixed(answer)
                                ? gpus.data
                                : erg_memory_answer_gpu(answer, 0)->name));
    erg_text_release(&gpus);
    set(document, "gpus", json_integer(erg_layout_gpus(request->layout)));
    set(document, "layout", layout_document(answer, request->layout));
    set(document, "recompute", erg_json_new_string(erg_layout_recompute_name(request->layout)));
    set(document, "offload", erg_json_number(request->layout->offload));
    set(document, "accounting",
        erg_json_new_string(erg_memory_accounting_names[request->accounting]));
    set(document, "copies", erg_json_new_string(request->layer_copies ? "layer" : "group"));
    set(document, "peak_bytes", whole(worst->peak_bytes));
    set(document, "closed_form_bytes", whole(closed));
    set(document, "binding_stage", json_integer(answer->binding));
    set(document, "binding_item",
        erg_json_new_string(erg_memory_item_name(erg_memory_largest(worst))));
    set(document, "gpu_memory_bytes",
        whole(erg_memory_answer_gpu(answer, answer->binding)->memory_bytes));
    set(document, "budget_bytes", whole(answer->rooms[answer->binding].gpu_bytes));
    set(document, "fits", json_boolean(answer->fits));
    set(document, "node_host_bytes",
        whole(erg_memory_answer_host_bytes(answer, answer->host_binding)));
    if (answer->solution)
        set(document, "solution", solution_document(answer->solution));
    if (answer->change && answer->change->found)
        set(document, "change", change_document(answer));
    if (answer->traffic) {
        set(document, "pipeline_s", erg_json_number(answer->traffic->time_s));
        set(document, "shared_link_s", erg_json_number(answer->shared_s));
    }
    set(document, "simulated_microbatches", json_integer(result->microbatches));
    set(document, "stages", stages);
    return document;
}
