/* A client of the daemon. */
#define _GNU_SOURCE /* struct ucred */
#include "telemetry/daemon_client.h"

#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const int64_t answer_timeout_ns = 10000000000;

struct erg_daemon_client {
    int socket;
    pthread_mutex_t lock; /* protects all below */
    uint32_t sequence;
    bool broken; /* an answer came too late and would be mistaken for the next one */
    uint64_t ended;
    char reason[ERG_WIRE_TEXT]; /* why that lease has ended; "": none has */
    enum erg_wire_status said;  /* in the latest answer */
    struct erg_wire_writer out;
    unsigned char in[ERG_WIRE_MOST];
};

static int connect_to(const char *path, int *connected, struct erg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (strlen(path) >= sizeof address.sun_path)
        return erg_fail(err, ERG_FAILED, "connecting to the daemon at '%s': the path is too long",
                        path);
    memcpy(address.sun_path, path, strlen(path));
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (file < 0 || connect(file, (struct sockaddr *)&address, sizeof address) != 0) {
        int code = errno;
        if (file >= 0)
            close(file);
        return erg_fail(err, ERG_NO_DEVICE,
                        "connecting to the daemon at '%s': %s, expected one that listens", path,
                        strerror(code));
    }
    if (getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        (peer.uid == 0 || peer.uid == geteuid())) {
        *connected = file;
        return 0;
    }
    close(file);
    return erg_fail(err, ERG_NO_DEVICE,
                    "connecting to the daemon at '%s': another user listens there, expected root",
                    path);
}

/* ---- packets; the lock held ---- */

static void note_event(struct erg_daemon_client *client, struct erg_wire_reader *body)
{
    uint64_t lease = erg_wire_get_u64(body);
    (void)erg_wire_get_u32(body);
    erg_wire_get_text(body, client->reason);
    client->ended = lease;
    if (!client->reason[0])
        snprintf(client->reason, sizeof client->reason, "the lease has ended");
}

/* The next packet; false if none comes in time or the connection has ended. */
static bool receive(struct erg_daemon_client *client, struct erg_wire_head *head,
                    struct erg_wire_reader *body, int64_t until_ns)
{
    for (;;) {
        struct pollfd wait = {.fd = client->socket, .events = POLLIN};
        int64_t left_ns = until_ns - erg_now_ns();
        int ready = poll(&wait, 1, left_ns > 0 ? (int)(left_ns / 1000000) + 1 : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return false;
        ssize_t count = recv(client->socket, client->in, sizeof client->in, 0);
        /* A daemon that refuses us closes before it reads, but after it has sent the reason. */
        if (count < 0 && (errno == EINTR || errno == ECONNRESET))
            continue;
        client->broken |= count <= 0;
        if (count > 0 && erg_wire_read_head(head, body, client->in, (size_t)count))
            return true;
        if (count <= 0)
            return false;
    }
}

/* The answer to a sequence number; skips events and answers to abandoned requests. */
static bool await_answer(struct erg_daemon_client *client, uint32_t sequence,
                         struct erg_wire_head *head, struct erg_wire_reader *body)
{
    int64_t until_ns = erg_now_ns() + answer_timeout_ns;
    while (receive(client, head, body, until_ns)) {
        if (head->type == ERG_WIRE_LEASE_EVENT)
            note_event(client, body);
        else if (head->type == ERG_WIRE_ANSWER || /* type 0: it refuses the connection */
                 (head->type & ERG_WIRE_ANSWER && head->type < ERG_WIRE_LEASE_EVENT &&
                  head->sequence == sequence))
            return true;
    }
    client->broken = true;
    return false;
}

static int exchange(struct erg_daemon_client *client, struct erg_wire_request *request,
                    struct erg_wire_reader *body, struct erg_error *err)
{
    struct erg_wire_head head;
    struct erg_wire_reader rest;
    request->sequence = ++client->sequence;
    erg_wire_write_request(&client->out, request);
    if (!client->broken) /* after a failure, earlier data can still be read */
        (void)!send(client->socket, client->out.bytes, client->out.count, MSG_NOSIGNAL);
    client->said = ERG_WIRE_LOST;
    if (client->broken || !await_answer(client, request->sequence, &head, &rest))
        return erg_fail(
            err, ERG_NO_DEVICE,
            "asking the daemon of clocks: it has ended or does not answer, expected one "
            "that lives as long as this process");
    client->said = head.status;
    if (head.status == ERG_WIRE_DONE || head.status == ERG_WIRE_LIMITED) {
        if (body)
            *body = rest;
        return 0;
    }
    if (head.status == ERG_WIRE_NO_LEASE && client->reason[0])
        return erg_fail(err, ERG_NO_DEVICE, "asking the daemon of clocks: the lease has ended: %s",
                        client->reason);
    return erg_fail(err, ERG_NO_DEVICE, "asking the daemon of clocks: %s",
                    head.text[0] ? head.text : "it refuses");
}

/* ---- calls ---- */

int erg_daemon_exchange(struct erg_daemon_client *client, struct erg_wire_request *request,
                        struct erg_wire_reader *body, struct erg_error *err)
{
    pthread_mutex_lock(&client->lock);
    int result = exchange(client, request, body, err);
    pthread_mutex_unlock(&client->lock);
    return result;
}

enum erg_wire_status erg_daemon_said(const struct erg_daemon_client *client)
{
    return client->said;
}

int erg_daemon_speak(struct erg_daemon_client **out, int socket, struct erg_wire_hello *hello,
                     struct erg_error *err)
{
    struct erg_daemon_client *client = erg_xcalloc(1, sizeof *client);
    struct erg_wire_request request = {.type = ERG_WIRE_HELLO};
    struct erg_wire_reader body = {0};
    client->socket = socket;
    pthread_mutex_init(&client->lock, NULL);
    int result = erg_daemon_exchange(client, &request, &body, err);
    if (result == 0 && !erg_wire_read_hello(hello, &body))
        result = erg_fail(
            err, ERG_NO_DEVICE,
            "asking the daemon of clocks: it uses another version of the protocol, expected %d",
            ERG_WIRE_VERSION);
    if (result != 0) {
        erg_daemon_disconnect(client);
        return -1;
    }
    *out = client;
    return 0;
}

int erg_daemon_connect(struct erg_daemon_client **out, const char *path,
                       struct erg_wire_hello *hello, struct erg_error *err)
{
    int connected = -1;
    if (connect_to(path, &connected, err) != 0)
        return -1;
    return erg_daemon_speak(out, connected, hello, err) == 0
               ? 0
               : erg_fail_context(err, "connecting to the daemon at '%s'", path);
}

void erg_daemon_disconnect(struct erg_daemon_client *client)
{
    if (!client)
        return;
    close(client->socket);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

int erg_daemon_ask_gpu(struct erg_daemon_client *client, uint32_t index, struct erg_wire_gpu *gpu,
                       struct erg_error *err)
{
    struct erg_wire_request request = {.type = ERG_WIRE_GPU, .index = index};
    struct erg_wire_reader body;
    pthread_mutex_lock(&client->lock);
    int result = exchange(client, &request, &body, err);
    if (result == 0 && !erg_wire_read_gpu(gpu, &body))
        result = erg_fail(err, ERG_NO_DEVICE, "asking the daemon of clocks: its answer is garbled");
    pthread_mutex_unlock(&client->lock);
    return result;
}

int erg_daemon_take_lease(struct erg_daemon_client *client, uint32_t index, enum erg_knob knob,
                          uint64_t *lease, uint32_t *ttl_ms, struct erg_error *err)
{
    struct erg_wire_request request = {
        .type = ERG_WIRE_LEASE, .index = index, .knob = (uint32_t)knob};
    struct erg_wire_reader body;
    pthread_mutex_lock(&client->lock);
    int result = exchange(client, &request, &body, err);
    if (result == 0) {
        *lease = erg_wire_get_u64(&body);
        (void)erg_wire_get_u64(&body); /* the bounds */
        *ttl_ms = erg_wire_get_u32(&body);
    }
    pthread_mutex_unlock(&client->lock);
    return result;
}

int erg_daemon_change(struct erg_daemon_client *client, struct erg_wire_request *request,
                      struct erg_wire_change *change, struct erg_error *err)
{
    struct erg_wire_reader body;
    *change = (struct erg_wire_change){0};
    pthread_mutex_lock(&client->lock);
    int result = exchange(client, request, &body, err);
    if (result == 0 && body.left > 0 && !erg_wire_read_change(change, &body))
        result = erg_fail(err, ERG_NO_DEVICE, "asking the daemon of clocks: its answer is garbled");
    pthread_mutex_unlock(&client->lock);
    return result;
}

const char *erg_daemon_ended_lease(struct erg_daemon_client *client, uint64_t *lease)
{
    struct erg_wire_head head;
    struct erg_wire_reader body;
    pthread_mutex_lock(&client->lock);
    while (!client->broken && receive(client, &head, &body, 0))
        if (head.type == ERG_WIRE_LEASE_EVENT)
            note_event(client, &body);
    if (client->broken && !client->reason[0]) {
        client->ended = 0;
        snprintf(client->reason, sizeof client->reason, "the daemon has ended");
    }
    *lease = client->ended;
    bool ended = client->reason[0] != '\0';
    pthread_mutex_unlock(&client->lock);
    return ended ? client->reason : NULL;
}
