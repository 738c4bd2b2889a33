/*
 * Writes execution traces by Chakra's schema: length-prefixed protobuf messages, GlobalMetadata and
 * then Nodes.
 */
#include "base/memory.h"
#include "base/text.h"
#include "io/file.h"
#include "io/json.h"
#include "trace/trace_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "0.0.4"

/* Numbers of the schema. */
enum node_type { COMP = 4, COMM_SEND = 5, COMM_RECV = 6, COMM_COLL = 7 };
enum comm_type {
    ALL_REDUCE = 0,
    ALL_GATHER = 2,
    BROADCAST = 5,
    ALL_TO_ALL = 6,
    REDUCE_SCATTER = 7
};
enum node_field {
    NODE_ID = 1,
    NODE_NAME,
    NODE_TYPE,
    NODE_NEEDS = 5,
    NODE_START,
    NODE_DURATION,
    NODE_ATTRIBUTE = 10
};
enum attribute_field {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_INT64 = 9,
    ATTRIBUTE_UINT64 = 13,
    ATTRIBUTE_BOOL = 27,
    ATTRIBUTE_STRING = 29
};
enum wire { VARINT = 0, BYTES = 2 };

/* An attribute of a node: a text or a number. */
struct chakra_attribute {
    const char *name, *text;
    enum attribute_field field;
    uint64_t number;
};
enum { ATTRIBUTES_MOST = 8 };

struct chakra_node {
    uint64_t id;
    const char *name;
    enum node_type type;
    uint64_t start_us, duration_us;
    const uint64_t *needs;
    size_t need_count;
    struct chakra_attribute attributes[ATTRIBUTES_MOST];
    size_t attribute_count;
};

/* ---- protobuf ---- */

static void add_number(struct erg_text *out, int field, uint64_t value)
{
    erg_text_add_varint(out, (uint64_t)field << 3 | VARINT);
    erg_text_add_varint(out, value);
}

static void add_bytes(struct erg_text *out, int field, const char *bytes, size_t count)
{
    erg_text_add_varint(out, (uint64_t)field << 3 | BYTES);
    erg_text_add_varint(out, count);
    erg_text_add_bytes(out, bytes, count);
}

/* A text of the schema is UTF-8. */
static void add_text(struct erg_text *out, int field, const char *text)
{
    struct erg_text valid = {0};
    erg_text_add(&valid, "");
    erg_text_add_utf8(&valid, text, strlen(text));
    add_bytes(out, field, valid.data, valid.count);
    erg_text_release(&valid);
}

static void add_attribute(struct erg_text *out, const struct chakra_attribute *attribute)
{
    struct erg_text body = {0};
    add_text(&body, ATTRIBUTE_NAME, attribute->name);
    if (attribute->text)
        add_text(&body, ATTRIBUTE_STRING, attribute->text);
    else
        add_number(&body, (int)attribute->field, attribute->number);
    add_bytes(out, NODE_ATTRIBUTE, body.data, body.count);
    erg_text_release(&body);
}

static void add_message(struct erg_text *out, const struct erg_text *body)
{
    erg_text_add_varint(out, body->count);
    if (body->count)
        erg_text_add_bytes(out, body->data, body->count);
}

static void add_head(struct erg_text *out)
{
    struct erg_text body = {0};
    add_text(&body, 1, SCHEMA);
    add_message(out, &body);
    erg_text_release(&body);
}

static void add_node(struct erg_text *out, const struct chakra_node *node)
{
    struct erg_text body = {0}, needs = {0};
    add_number(&body, NODE_ID, node->id);
    add_text(&body, NODE_NAME, node->name);
    add_number(&body, NODE_TYPE, node->type);
    for (size_t i = 0; i < node->need_count; i++)
        erg_text_add_varint(&needs, node->needs[i]);
    if (needs.count)
        add_bytes(&body, NODE_NEEDS, needs.data, needs.count);
    add_number(&body, NODE_START, node->start_us);
    add_number(&body, NODE_DURATION, node->duration_us);
    for (size_t i = 0; i < node->attribute_count; i++)
        add_attribute(&body, &node->attributes[i]);
    add_message(out, &body);
    erg_text_release(&body);
    erg_text_release(&needs);
}

/* ---- the same as JSON, by protobuf's own mapping: 64-bit numbers in quotes ---- */

static void add_json_head(struct erg_text *out)
{
    erg_text_add(out, "{\"metadata\":{\"version\":\"" SCHEMA "\"},\n\"nodes\":[");
}

static void add_json_attribute(struct erg_text *out, const struct chakra_attribute *attribute)
{
    erg_text_add(out, "{\"name\":");
    erg_json_add_string(out, attribute->name);
    if (attribute->text) {
        erg_text_add(out, ",\"stringVal\":");
        erg_json_add_string(out, attribute->text);
    } else if (attribute->field == ATTRIBUTE_BOOL) {
        erg_text_printf(out, ",\"boolVal\":%s", attribute->number ? "true" : "false");
    } else {
        erg_text_printf(out, ",\"%s\":\"%" PRIu64 "\"",
                        attribute->field == ATTRIBUTE_INT64 ? "int64Val" : "uint64Val",
                        attribute->number);
    }
    erg_text_add(out, "}");
}

static void add_json_node(struct erg_text *out, const struct chakra_node *node)
{
    static const char *const types[] = {[COMP] = "COMP_NODE",
                                        [COMM_SEND] = "COMM_SEND_NODE",
                                        [COMM_RECV] = "COMM_RECV_NODE",
                                        [COMM_COLL] = "COMM_COLL_NODE"};
    erg_text_printf(out, "%s\n{\"id\":\"%" PRIu64 "\",\"name\":", node->id ? "," : "", node->id);
    erg_json_add_string(out, node->name);
    erg_text_printf(out, ",\"type\":\"%s\",\"dataDeps\":[", types[node->type]);
    for (size_t i = 0; i < node->need_count; i++)
        erg_text_printf(out, "%s\"%" PRIu64 "\"", i ? "," : "", node->needs[i]);
    erg_text_printf(
        out, "],\"startTimeMicros\":\"%" PRIu64 "\",\"durationMicros\":\"%" PRIu64 "\",\"attr\":[",
        node->start_us, node->duration_us);
    for (size_t i = 0; i < node->attribute_count; i++) {
        erg_text_add(out, i ? "," : "");
        add_json_attribute(out, &node->attributes[i]);
    }
    erg_text_add(out, "]}");
}

/* ---- nodes of records ---- */

struct chakra_writer {
    const struct erg_kernel_trace *trace;
    size_t *order;    /* records by their start */
    uint64_t *ids;    /* of records: their positions in that order */
    size_t *previous; /* of records: the previous one of its stream; itself: none */
    bool json;
};

/* Sorts record positions by start, then by position. */
struct chakra_place {
    int64_t start_ns;
    int32_t device, stream;
    size_t record;
};

static int by_start(const void *left, const void *right)
{
    const struct chakra_place *a = left, *b = right;
    return a->start_ns != b->start_ns ? (a->start_ns > b->start_ns) - (a->start_ns < b->start_ns)
                                      : (a->record > b->record) - (a->record < b->record);
}

static int by_stream(const void *left, const void *right)
{
    const struct chakra_place *a = left, *b = right;
    return a->device != b->device   ? (a->device > b->device) - (a->device < b->device)
           : a->stream != b->stream ? (a->stream > b->stream) - (a->stream < b->stream)
                                    : by_start(left, right);
}

static int put_in_order(struct chakra_writer *writer, struct erg_error *err)
{
    const struct erg_kernel_trace *trace = writer->trace;
    const size_t count = trace->record_count;
    struct chakra_place *places = erg_xcalloc(count + 1, sizeof *places);
    writer->order = erg_xcalloc(count + 1, sizeof *writer->order);
    writer->ids = erg_xcalloc(count + 1, sizeof *writer->ids);
    writer->previous = erg_xcalloc(count + 1, sizeof *writer->previous);
    for (size_t i = 0; i < count; i++)
        places[i] = (struct chakra_place){trace->records[i].start_ns, trace->records[i].device,
                                          trace->records[i].stream, i};
    qsort(places, count, sizeof *places, by_start);
    for (size_t i = 0; i < count; i++) {
        writer->order[i] = places[i].record;
        writer->ids[places[i].record] = i;
    }
    qsort(places, count, sizeof *places, by_stream);
    for (size_t i = 0; i < count; i++) {
        bool follows = i > 0 && places[i - 1].device == places[i].device &&
                       places[i - 1].stream == places[i].stream;
        writer->previous[places[i].record] = places[follows ? i - 1 : i].record;
    }
    free(places);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < trace->records[i].need_count; k++) {
            size_t need = trace->records[i].needs[k];
            if (need >= count || writer->ids[need] >= writer->ids[i])
                return erg_fail(err, ERG_FAILED,
                                "kernel %zu, '%.60s', needs kernel %zu, which %s; expected one "
                                "that begins earlier",
                                i, trace->records[i].name, need,
                                need >= count ? "is none" : "begins no earlier");
        }
    return 0;
}

static bool has_word(const char *name, const char *word)
{
    return name && strstr(name, word) != NULL;
}

static enum node_type type_of(const struct erg_kernel_record *record)
{
    const char *name = record->collective.name ? record->collective.name : record->name;
    if (!erg_kernel_communicates(record->category))
        return COMP;
    if (record->category != ERG_CATEGORY_SEND_RECV || record->sub == ERG_SUB_ALL_TO_ALL ||
        has_word(name, "roadcast"))
        return COMM_COLL;
    return has_word(name, "recv") && !has_word(name, "send") ? COMM_RECV : COMM_SEND;
}

static uint64_t comm_type_of(const struct erg_kernel_record *record)
{
    switch (record->category) {
    case ERG_CATEGORY_ALL_GATHER:
        return ALL_GATHER;
    case ERG_CATEGORY_REDUCE_SCATTER:
        return REDUCE_SCATTER;
    case ERG_CATEGORY_SEND_RECV:
        return record->sub == ERG_SUB_ALL_TO_ALL ? ALL_TO_ALL : BROADCAST;
    default:
        return ALL_REDUCE;
    }
}

static void add(struct chakra_node *node, const char *name, enum attribute_field field,
                uint64_t number, const char *text)
{
    node->attributes[node->attribute_count++] =
        (struct chakra_attribute){name, text, field, number};
}

static void add_attributes(struct chakra_node *node, const struct erg_kernel_record *record)
{
    add(node, "is_cpu_op", ATTRIBUTE_BOOL, 0, NULL);
    if (node->type == COMP) {
        if (record->flops)
            add(node, "num_ops", ATTRIBUTE_INT64, record->flops, NULL);
        if (record->bytes)
            add(node, "tensor_size", ATTRIBUTE_UINT64, record->bytes, NULL);
        return;
    }
    if (node->type == COMM_COLL)
        add(node, "comm_type", ATTRIBUTE_INT64, comm_type_of(record), NULL);
    if (record->bytes)
        add(node, "comm_size", ATTRIBUTE_INT64, record->bytes, NULL);
    if (record->collective.group)
        add(node, "pg_name", ATTRIBUTE_STRING, 0, record->collective.group);
}

/* The node of record number `id`; its needs go into `needs`, without duplicates. */
static struct chakra_node node_of(const struct chakra_writer *writer, size_t id, uint64_t *needs,
                                  int64_t first_ns)
{
    const size_t at = writer->order[id];
    const struct erg_kernel_record *record = &writer->trace->records[at];
    const uint64_t start_ns = (uint64_t)record->start_ns - (uint64_t)first_ns;
    const uint64_t end_ns = start_ns + (uint64_t)(record->end_ns - record->start_ns);
    struct chakra_node node = {.id = id,
                               .name = record->name,
                               .type = type_of(record),
                               .start_us = (start_ns + 500) / 1000,
                               .duration_us = (end_ns + 500) / 1000 - (start_ns + 500) / 1000,
                               .needs = needs};
    if (writer->previous[at] != at)
        needs[node.need_count++] = writer->ids[writer->previous[at]];
    for (size_t i = 0; i < record->need_count; i++) {
        uint64_t need = writer->ids[record->needs[i]];
        bool known = false;
        for (size_t k = 0; k < node.need_count && !known; k++)
            known = needs[k] == need;
        if (!known)
            needs[node.need_count++] = need;
    }
    add_attributes(&node, record);
    return node;
}

static int write_nodes(const struct chakra_writer *writer, struct erg_file_writer *file,
                       struct erg_error *err)
{
    const struct erg_kernel_trace *trace = writer->trace;
    struct erg_text text = {0};
    uint64_t *needs = NULL;
    int result = 0;
    (writer->json ? add_json_head : add_head)(&text);
    for (size_t id = 0; id < trace->record_count && result == 0; id++) {
        size_t most = trace->records[writer->order[id]].need_count + 1;
        needs = erg_xrealloc(needs, most, sizeof *needs);
        const struct chakra_node node =
            node_of(writer, id, needs, trace->records[writer->order[0]].start_ns);
        (writer->json ? add_json_node : add_node)(&text, &node);
        if (text.count > 1 << 16) {
            result = erg_file_append(file, text.data, text.count, err);
            text.count = 0;
        }
    }
    if (writer->json)
        erg_text_add(&text, "\n]}\n");
    if (result == 0 && text.count)
        result = erg_file_append(file, text.data, text.count, err);
    free(needs);
    erg_text_release(&text);
    return result;
}

static int write_as(const struct erg_kernel_trace *trace, const char *path, bool json,
                    struct erg_error *err)
{
    struct chakra_writer writer = {.trace = trace, .json = json};
    struct erg_file_writer file;
    int result = put_in_order(&writer, err);
    if (result == 0 && (result = erg_file_begin(&file, path, err)) == 0) {
        result = write_nodes(&writer, &file, err);
        if (result == 0)
            result = erg_file_commit(&file, err);
        else
            erg_file_abandon(&file);
    }
    free(writer.order);
    free(writer.ids);
    free(writer.previous);
    return result;
}

int erg_trace_write_chakra(const struct erg_kernel_trace *trace, const char *path,
                           struct erg_error *err)
{
    return write_as(trace, path, false, err);
}

int erg_trace_write_chakra_json(const struct erg_kernel_trace *trace, const char *path,
                                struct erg_error *err)
{
    return write_as(trace, path, true, err);
}
