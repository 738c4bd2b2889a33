/* The daemon's packets: getters that check the length, and messages made of them. */
#include "telemetry/daemon_wire.h"

#include "base/text.h"

#include <assert.h>
#include <string.h>

/* ---- reading ---- */

static void get_bytes(struct erg_wire_reader *reader, void *bytes, size_t count)
{
    if (reader->broken || reader->left < count) {
        reader->broken = true;
        memset(bytes, 0, count);
        return;
    }
    memcpy(bytes, reader->at, count);
    reader->at += count;
    reader->left -= count;
}

static uint64_t get_number(struct erg_wire_reader *reader, size_t count)
{
    unsigned char bytes[8];
    uint64_t value = 0;
    get_bytes(reader, bytes, count);
    for (size_t i = count; i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

uint16_t erg_wire_get_u16(struct erg_wire_reader *reader)
{
    return (uint16_t)get_number(reader, 2);
}

uint32_t erg_wire_get_u32(struct erg_wire_reader *reader)
{
    return (uint32_t)get_number(reader, 4);
}

uint64_t erg_wire_get_u64(struct erg_wire_reader *reader)
{
    return get_number(reader, 8);
}

/* A field of `count` bytes as a UTF-8 string. */
static void get_field(struct erg_wire_reader *reader, char *text, size_t capacity, size_t count)
{
    text[0] = '\0';
    if (count > reader->left || count >= capacity) {
        reader->broken = true;
        return;
    }
    get_bytes(reader, text, count);
    text[count] = '\0';
    erg_utf8_repair(text, capacity);
}

void erg_wire_get_text(struct erg_wire_reader *reader, char text[ERG_WIRE_TEXT])
{
    size_t count = erg_wire_get_u16(reader);
    get_field(reader, text, ERG_WIRE_TEXT, count);
}

/* ---- writing ---- */

static void put_bytes(struct erg_wire_writer *writer, const void *bytes, size_t count)
{
    if (count > sizeof writer->bytes - writer->count) {
        writer->full = true;
        return;
    }
    memcpy(writer->bytes + writer->count, bytes, count);
    writer->count += count;
}

static void put_number(struct erg_wire_writer *writer, uint64_t value, size_t count)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    put_bytes(writer, bytes, count);
}

void erg_wire_put_u16(struct erg_wire_writer *writer, uint16_t value)
{
    put_number(writer, value, 2);
}

void erg_wire_put_u32(struct erg_wire_writer *writer, uint32_t value)
{
    put_number(writer, value, 4);
}

void erg_wire_put_u64(struct erg_wire_writer *writer, uint64_t value)
{
    put_number(writer, value, 8);
}

static void put_field(struct erg_wire_writer *writer, const char *text, size_t count)
{
    size_t length = strnlen(text, count - 1);
    put_bytes(writer, text, length);
    for (size_t i = length; i < count; i++)
        put_number(writer, 0, 1);
}

void erg_wire_put_text(struct erg_wire_writer *writer, const char *text)
{
    size_t length = strnlen(text, ERG_WIRE_TEXT - 1);
    erg_wire_put_u16(writer, (uint16_t)length);
    put_bytes(writer, text, length);
}

void erg_wire_begin(struct erg_wire_writer *writer, unsigned type, uint32_t sequence)
{
    writer->count = 0;
    writer->full = false;
    erg_wire_put_u32(writer, ERG_WIRE_MAGIC);
    erg_wire_put_u16(writer, ERG_WIRE_VERSION);
    erg_wire_put_u16(writer, (uint16_t)type);
    erg_wire_put_u32(writer, sequence);
    erg_wire_put_u32(writer, 0);
}

void erg_wire_end(struct erg_wire_writer *writer)
{
    assert(writer->count >= ERG_WIRE_HEADER);
    for (size_t i = 0; i < 4; i++)
        writer->bytes[12 + i] = (unsigned char)(writer->count >> 8 * i);
}

/* ---- messages ---- */

/* False if the header is invalid or belongs to a packet of another length. */
static bool get_header(struct erg_wire_reader *reader, unsigned *type, uint32_t *sequence)
{
    size_t whole = reader->left;
    uint32_t magic = erg_wire_get_u32(reader);
    uint16_t version = erg_wire_get_u16(reader);
    *type = erg_wire_get_u16(reader);
    *sequence = erg_wire_get_u32(reader);
    uint32_t bytes = erg_wire_get_u32(reader);
    return !reader->broken && magic == ERG_WIRE_MAGIC && version == ERG_WIRE_VERSION &&
           bytes == whole && whole <= ERG_WIRE_MOST;
}

static bool is_whole(const struct erg_wire_reader *reader)
{
    return !reader->broken && reader->left == 0;
}

static void get_bits(struct erg_wire_reader *reader, uint64_t *bits)
{
    *bits = erg_wire_get_u64(reader); /* byte i has the bits of GPUs 8 i to 8 i + 7 */
}

enum erg_wire_status erg_wire_read_request(struct erg_wire_request *request, const void *bytes,
                                           size_t count)
{
    struct erg_wire_reader reader = {.at = bytes, .left = count};
    *request = (struct erg_wire_request){0};
    if (!get_header(&reader, &request->type, &request->sequence))
        return ERG_WIRE_MALFORMED;
    switch (request->type) {
    case ERG_WIRE_HELLO:
        request->flags = erg_wire_get_u32(&reader);
        break;
    case ERG_WIRE_GPU:
        request->index = erg_wire_get_u32(&reader);
        break;
    case ERG_WIRE_LEASE:
        request->index = erg_wire_get_u32(&reader);
        request->knob = erg_wire_get_u32(&reader);
        request->ttl_ms = erg_wire_get_u32(&reader);
        (void)erg_wire_get_u32(&reader);
        break;
    case ERG_WIRE_KEEP:
    case ERG_WIRE_RELEASE:
    case ERG_WIRE_RESET:
        request->lease = erg_wire_get_u64(&reader);
        break;
    case ERG_WIRE_CLOCK:
        request->lease = erg_wire_get_u64(&reader);
        request->low = erg_wire_get_u32(&reader);
        request->high = erg_wire_get_u32(&reader);
        request->flags = erg_wire_get_u32(&reader);
        break;
    case ERG_WIRE_POWER:
        request->lease = erg_wire_get_u64(&reader);
        request->high = erg_wire_get_u32(&reader);
        request->flags = erg_wire_get_u32(&reader);
        break;
    case ERG_WIRE_READ:
        request->index = erg_wire_get_u32(&reader);
        request->metrics = erg_wire_get_u64(&reader);
        break;
    case ERG_WIRE_SUBSCRIBE:
        request->metrics = erg_wire_get_u64(&reader);
        request->period_ms = erg_wire_get_u32(&reader);
        break;
    case ERG_WIRE_GRANT:
        request->job = erg_wire_get_u32(&reader);
        request->uid = erg_wire_get_u32(&reader);
        get_bits(&reader, &request->gpus);
        break;
    case ERG_WIRE_REVOKE:
        request->job = erg_wire_get_u32(&reader);
        break;
    default:
        return ERG_WIRE_DONE;
    }
    return is_whole(&reader) ? ERG_WIRE_DONE : ERG_WIRE_MALFORMED;
}

void erg_wire_write_request(struct erg_wire_writer *writer, const struct erg_wire_request *request)
{
    erg_wire_begin(writer, request->type, request->sequence);
    switch (request->type) {
    case ERG_WIRE_HELLO:
        erg_wire_put_u32(writer, request->flags);
        break;
    case ERG_WIRE_GPU:
        erg_wire_put_u32(writer, request->index);
        break;
    case ERG_WIRE_LEASE:
        erg_wire_put_u32(writer, request->index);
        erg_wire_put_u32(writer, request->knob);
        erg_wire_put_u32(writer, request->ttl_ms);
        erg_wire_put_u32(writer, 0);
        break;
    case ERG_WIRE_KEEP:
    case ERG_WIRE_RELEASE:
    case ERG_WIRE_RESET:
        erg_wire_put_u64(writer, request->lease);
        break;
    case ERG_WIRE_CLOCK:
        erg_wire_put_u64(writer, request->lease);
        erg_wire_put_u32(writer, request->low);
        erg_wire_put_u32(writer, request->high);
        erg_wire_put_u32(writer, request->flags);
        break;
    case ERG_WIRE_POWER:
        erg_wire_put_u64(writer, request->lease);
        erg_wire_put_u32(writer, request->high);
        erg_wire_put_u32(writer, request->flags);
        break;
    case ERG_WIRE_READ:
        erg_wire_put_u32(writer, request->index);
        erg_wire_put_u64(writer, request->metrics);
        break;
    case ERG_WIRE_SUBSCRIBE:
        erg_wire_put_u64(writer, request->metrics);
        erg_wire_put_u32(writer, request->period_ms);
        break;
    case ERG_WIRE_GRANT:
        erg_wire_put_u32(writer, request->job);
        erg_wire_put_u32(writer, request->uid);
        erg_wire_put_u64(writer, request->gpus);
        break;
    case ERG_WIRE_REVOKE:
        erg_wire_put_u32(writer, request->job);
        break;
    default:
        break;
    }
    erg_wire_end(writer);
}

bool erg_wire_read_head(struct erg_wire_head *head, struct erg_wire_reader *body, const void *bytes,
                        size_t count)
{
    *head = (struct erg_wire_head){0};
    *body = (struct erg_wire_reader){.at = bytes, .left = count};
    if (!get_header(body, &head->type, &head->sequence))
        return false;
    if (head->type == ERG_WIRE_LEASE_EVENT || head->type == ERG_WIRE_READING)
        return true;
    head->status = (enum erg_wire_status)erg_wire_get_u32(body);
    head->driver = (int32_t)erg_wire_get_u32(body);
    erg_wire_get_text(body, head->text);
    return !body->broken && head->type & ERG_WIRE_ANSWER && head->status <= ERG_WIRE_LOST &&
           (head->status == ERG_WIRE_DONE || body->left == 0);
}

void erg_wire_begin_answer(struct erg_wire_writer *writer, unsigned type, uint32_t sequence,
                           enum erg_wire_status status, int32_t driver, const char *text)
{
    erg_wire_begin(writer, type | ERG_WIRE_ANSWER, sequence);
    erg_wire_put_u32(writer, status);
    erg_wire_put_u32(writer, (uint32_t)driver);
    erg_wire_put_text(writer, text);
}

bool erg_wire_read_hello(struct erg_wire_hello *hello, struct erg_wire_reader *body)
{
    char software[sizeof hello->software + 1];
    hello->least_version = erg_wire_get_u16(body);
    hello->most_version = erg_wire_get_u16(body);
    hello->gpus = erg_wire_get_u32(body);
    get_bytes(body, hello->daemon, sizeof hello->daemon);
    hello->time_ns = (int64_t)erg_wire_get_u64(body);
    get_field(body, software, sizeof software, sizeof hello->software);
    memcpy(hello->software, software, sizeof hello->software - 1);
    hello->software[sizeof hello->software - 1] = '\0';
    return is_whole(body);
}

void erg_wire_put_hello(struct erg_wire_writer *writer, const struct erg_wire_hello *hello)
{
    erg_wire_put_u16(writer, hello->least_version);
    erg_wire_put_u16(writer, hello->most_version);
    erg_wire_put_u32(writer, hello->gpus);
    put_bytes(writer, hello->daemon, sizeof hello->daemon);
    erg_wire_put_u64(writer, (uint64_t)hello->time_ns);
    put_field(writer, hello->software, sizeof hello->software);
}

bool erg_wire_read_gpu(struct erg_wire_gpu *gpu, struct erg_wire_reader *body)
{
    char uuid[sizeof gpu->uuid + 1], name[sizeof gpu->name + 1];
    get_field(body, uuid, sizeof uuid, sizeof gpu->uuid);
    get_field(body, name, sizeof name, sizeof gpu->name);
    memcpy(gpu->uuid, uuid, sizeof gpu->uuid - 1);
    memcpy(gpu->name, name, sizeof gpu->name - 1);
    gpu->uuid[sizeof gpu->uuid - 1] = gpu->name[sizeof gpu->name - 1] = '\0';
    gpu->rights = erg_wire_get_u32(body);
    gpu->least[0] = gpu->most[0] = 0;
    gpu->holders[0] = -1;
    for (int knob = 1; knob < ERG_KNOBS; knob++) {
        gpu->least[knob] = erg_wire_get_u32(body);
        gpu->most[knob] = erg_wire_get_u32(body);
    }
    gpu->limit_default_mw = erg_wire_get_u32(body);
    gpu->limit_now_mw = erg_wire_get_u32(body);
    for (int knob = 1; knob < ERG_KNOBS; knob++)
        gpu->holders[knob] = (int64_t)erg_wire_get_u64(body);
    return is_whole(body);
}

void erg_wire_put_gpu(struct erg_wire_writer *writer, const struct erg_wire_gpu *gpu)
{
    put_field(writer, gpu->uuid, sizeof gpu->uuid);
    put_field(writer, gpu->name, sizeof gpu->name);
    erg_wire_put_u32(writer, gpu->rights);
    for (int knob = 1; knob < ERG_KNOBS; knob++) {
        erg_wire_put_u32(writer, gpu->least[knob]);
        erg_wire_put_u32(writer, gpu->most[knob]);
    }
    erg_wire_put_u32(writer, gpu->limit_default_mw);
    erg_wire_put_u32(writer, gpu->limit_now_mw);
    for (int knob = 1; knob < ERG_KNOBS; knob++)
        erg_wire_put_u64(writer, (uint64_t)gpu->holders[knob]);
}

bool erg_wire_read_change(struct erg_wire_change *change, struct erg_wire_reader *body)
{
    change->received_ns = (int64_t)erg_wire_get_u64(body);
    change->begin_ns = (int64_t)erg_wire_get_u64(body);
    change->end_ns = (int64_t)erg_wire_get_u64(body);
    change->seen = erg_wire_get_u32(body);
    return is_whole(body);
}

void erg_wire_put_change(struct erg_wire_writer *writer, const struct erg_wire_change *change)
{
    erg_wire_put_u64(writer, (uint64_t)change->received_ns);
    erg_wire_put_u64(writer, (uint64_t)change->begin_ns);
    erg_wire_put_u64(writer, (uint64_t)change->end_ns);
    erg_wire_put_u32(writer, change->seen);
}
