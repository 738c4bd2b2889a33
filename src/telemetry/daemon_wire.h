/*
 * The protocol of the daemon of clocks and power limits and its clients: packets of a local socket
 * (SOCK_SEQPACKET), one message in each, little-endian, of at most ERG_WIRE_MOST bytes.
 *
 *   0  u32 magic "ERGD"   4  u16 version 1   6  u16 type   8  u32 sequence   12  u32 bytes in all
 *
 * An answer has the type and the sequence of its request, and ERG_WIRE_ANSWER in the type. After
 * the header of every answer comes
 *
 *   i32 status (enum erg_wire_status)   i32 the driver's result   text
 *
 * and, where the status is 0, the body. A text is a u16 length and that number of bytes of UTF-8;
 * for a refusal it is one sentence. An event has sequence 0 and only a body. Requests and bodies:
 *
 *   HELLO      u32 flags (0)              -> u16 least, u16 most version; u32 GPUs; u8 daemon[16];
 *                                            i64 time_ns; char software[32]
 *   GPU        u32 index                  -> char uuid[48], name[64]; u32 rights; per knob u32
 *                                            least, most; u32 limit_mw default, now; i64 holder's
 *                                            uid per knob, -1 for none
 *   LEASE      u32 index, knob, ttl_ms, 0 -> u64 lease; u32 least, most, ttl_ms
 *   KEEP       u64 lease                  ->
 *   RELEASE    u64 lease                  ->
 *   CLOCK      u64 lease; u32 low_mhz, high_mhz, flags  -> i64 received_ns, begin_ns, end_ns; u32
 *   POWER      u64 lease; u32 limit_mw, flags              seen (MHz or mW, 0: not looked at)
 *   RESET      u64 lease                  ->
 *   READ       u32 index (-1 all); u64 metrics -> a reading
 *   SUBSCRIBE  u64 metrics; u32 period_ms (0 ends it)  ->
 *   GRANT      u32 job, uid; u8 GPUs[8], a bit for each ->
 *   REVOKE     u32 job                    ->
 *
 * Events: LEASE_EVENT is u64 lease; u32 reason; text. READING is u32 lost, then a reading: u32
 * GPUs, and for each u32 index, u32 count and, count times, u16 metric, u16 0, i64 value, i64
 * time_ns. A metric is a bit of telemetry/gpu.h, or ERG_WIRE_ANSWERS.
 *
 * Units: times are erg_now_ns()'s (CLOCK_MONOTONIC) in ns, clocks MHz, limits mW.
 *
 * Everything is read through getters that check the length: after a short read all getters return
 * 0, and the reader reports the failure at the end. Bytes are never cast to structures.
 */
#ifndef ERG_TELEMETRY_DAEMON_WIRE_H
#define ERG_TELEMETRY_DAEMON_WIRE_H

#include "telemetry/knobs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ERG_WIRE_DEFAULT_SOCKET "/run/ergon/ergond.sock"

enum {
    ERG_WIRE_MAGIC = 0x44475245,
    ERG_WIRE_VERSION = 1,
    ERG_WIRE_MOST = 16 << 10,
    ERG_WIRE_HEADER = 16,
    ERG_WIRE_TEXT = 400,   /* the longest text, with a NUL */
    ERG_WIRE_ANSWERS = 63, /* a metric: 1 while the GPU's driver answers, else 0 */
    ERG_WIRE_GPUS = 64,
};

enum erg_wire_type {
    ERG_WIRE_HELLO = 1,
    ERG_WIRE_GPU,
    ERG_WIRE_LEASE,
    ERG_WIRE_KEEP,
    ERG_WIRE_RELEASE,
    ERG_WIRE_CLOCK,
    ERG_WIRE_POWER,
    ERG_WIRE_RESET,
    ERG_WIRE_READ,
    ERG_WIRE_SUBSCRIBE,
    ERG_WIRE_GRANT,
    ERG_WIRE_REVOKE,
    ERG_WIRE_TYPES, /* one more than the last */
    ERG_WIRE_ANSWER = 0x8000,
    ERG_WIRE_LEASE_EVENT = 0xf000,
    ERG_WIRE_READING = 0xf001,
};

enum erg_wire_status {
    ERG_WIRE_DONE = 0,
    ERG_WIRE_DENIED,
    ERG_WIRE_BUSY,
    ERG_WIRE_NO_LEASE,
    ERG_WIRE_BOUNDS,
    ERG_WIRE_REFUSED,    /* by the driver */
    ERG_WIRE_LIMITED,    /* too many changes: it is kept as the pending target */
    ERG_WIRE_SUPERSEDED, /* a newer target came before its turn */
    ERG_WIRE_MALFORMED,
    ERG_WIRE_LOST, /* the GPU has fallen off the bus, or its driver hangs */
};

/* Flags of CLOCK and POWER. Without the first the answer means "accepted as the pending target". */
enum { ERG_WIRE_WAIT = 1, ERG_WIRE_LOOK = 2 };

enum erg_wire_reason {
    ERG_WIRE_EXPIRED = 1,
    ERG_WIRE_REVOKED,
    ERG_WIRE_GPU_LOST,
    ERG_WIRE_DAEMON_ENDS,
};

/* ---- reading ---- */

struct erg_wire_reader {
    const unsigned char *at;
    size_t left;
    bool broken; /* a getter found too few bytes or an invalid text */
};

uint16_t erg_wire_get_u16(struct erg_wire_reader *reader);
uint32_t erg_wire_get_u32(struct erg_wire_reader *reader);
uint64_t erg_wire_get_u64(struct erg_wire_reader *reader);
/* A text as a UTF-8 string. */
void erg_wire_get_text(struct erg_wire_reader *reader, char text[ERG_WIRE_TEXT]);

/* ---- writing: data that does not fit is not written at all ---- */

struct erg_wire_writer {
    unsigned char bytes[ERG_WIRE_MOST];
    size_t count;
    bool full;
};

void erg_wire_begin(struct erg_wire_writer *writer, unsigned type, uint32_t sequence);
void erg_wire_put_u16(struct erg_wire_writer *writer, uint16_t value);
void erg_wire_put_u32(struct erg_wire_writer *writer, uint32_t value);
void erg_wire_put_u64(struct erg_wire_writer *writer, uint64_t value);
void erg_wire_put_text(struct erg_wire_writer *writer, const char *text);
void erg_wire_end(struct erg_wire_writer *writer); /* the length in the header */

/* ---- messages ---- */

struct erg_wire_request {
    unsigned type; /* an enum erg_wire_type, or an unknown type */
    uint32_t sequence;
    uint64_t lease, metrics;
    uint32_t index, knob, ttl_ms, low, high, flags, period_ms, job, uid; /* POWER: `high` */
    uint64_t gpus;                                                       /* bits */
};

/*
 * Reads a packet as a request. ERG_WIRE_MALFORMED for other packets, for a wrong length and for
 * extra bytes. An unknown type is not an error here: its body is ignored.
 */
enum erg_wire_status erg_wire_read_request(struct erg_wire_request *request, const void *bytes,
                                           size_t count);
void erg_wire_write_request(struct erg_wire_writer *writer, const struct erg_wire_request *request);

/* The header of an answer or event and the fields before its body; `body` is left at the body. */
struct erg_wire_head {
    unsigned type;
    uint32_t sequence;
    enum erg_wire_status status; /* 0 of an event */
    int32_t driver;
    char text[ERG_WIRE_TEXT];
};

bool erg_wire_read_head(struct erg_wire_head *head, struct erg_wire_reader *body, const void *bytes,
                        size_t count);
void erg_wire_begin_answer(struct erg_wire_writer *writer, unsigned type, uint32_t sequence,
                           enum erg_wire_status status, int32_t driver, const char *text);

struct erg_wire_hello {
    uint16_t least_version, most_version;
    uint32_t gpus;
    unsigned char daemon[16]; /* drawn at its start */
    int64_t time_ns;
    char software[32];
};

struct erg_wire_gpu {
    char uuid[48], name[64];
    uint32_t rights; /* bit 1 << knob: this process may have a lease of it */
    uint32_t least[ERG_KNOBS],
        most[ERG_KNOBS]; /* MHz and mW, by knob; within this process's rights */
    uint32_t limit_default_mw, limit_now_mw;
    int64_t holders[ERG_KNOBS];
};

struct erg_wire_change {
    int64_t received_ns, begin_ns, end_ns; /* 0 while pending */
    uint32_t seen;
};

/* False if the body is too short or too long. */
bool erg_wire_read_hello(struct erg_wire_hello *hello, struct erg_wire_reader *body);
bool erg_wire_read_gpu(struct erg_wire_gpu *gpu, struct erg_wire_reader *body);
bool erg_wire_read_change(struct erg_wire_change *change, struct erg_wire_reader *body);
void erg_wire_put_hello(struct erg_wire_writer *writer, const struct erg_wire_hello *hello);
void erg_wire_put_gpu(struct erg_wire_writer *writer, const struct erg_wire_gpu *gpu);
void erg_wire_put_change(struct erg_wire_writer *writer, const struct erg_wire_change *change);

#endif
