/* How ranks meet: rank 0 listens, the others connect, and both prove that they know the secret. */
#define _GNU_SOURCE /* accept4 */
#include "launch/wire_internal.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/proof_internal.h"
#include "launch/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const int64_t saying_ns = 5000000000;  /* until the missing ranks are named */
static const int64_t leaving_ns = 2000000000; /* until a rank leaves that a signal has come to */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Waits in short steps, so that Ctrl-C is noticed. False at the deadline. */
static bool wait_for(struct pollfd *fds, size_t count, int64_t deadline_ns)
{
    int64_t left_ms = (deadline_ns - erg_now_ns()) / 1000000;
    if (left_ms < 0)
        return false;
    for (size_t i = 0; i < count; i++)
        fds[i].revents = 0;
    poll(fds, count, (int)least(left_ms + 1, 100));
    return true;
}

/*
 * A signal usually goes to all ranks, and those that are about to connect would find no peer: the
 * wait for them goes on a little longer. Then the ranks have met, and stop together. *leave_ns:
 * until when, 0: no signal has come.
 */
static int check_interrupt(int64_t *leave_ns, struct erg_error *err)
{
    if (!erg_interrupted())
        return 0;
    if (!*leave_ns)
        *leave_ns = erg_now_ns() + leaving_ns;
    return erg_now_ns() < *leave_ns
               ? 0
               : erg_fail(err, ERG_INTERRUPTED, "interrupted while waiting for the other ranks");
}

static bool is_loopback(const char *host)
{
    return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

static int resolve(struct addrinfo **list, const char *host, int port, int flags,
                   struct erg_error *err)
{
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    /* A machine that resolves no names still has the loopback address: it stands for an empty
     * host. */
    bool local = host && !strcmp(host, "localhost");
    if (local)
        hints.ai_flags &= ~AI_PASSIVE;
    int code = getaddrinfo(local ? NULL : host, service, &hints, list);
    if (code)
        return erg_fail(err, ERG_FAILED, "cannot find the address of rank 0, \"%s\": %s",
                        host ? host : "any", gai_strerror(code));
    return 0;
}

/* ---- the proof ---- */

enum { NONCE_BYTES = 16, CHALLENGE_BYTES = NONCE_BYTES + ERG_PROOF_BYTES };

/* Random numbers of both sides, so that no proof is of use twice. */
struct nonces {
    unsigned char of_rank[NONCE_BYTES], of_root[NONCE_BYTES];
};

/* The proof of `signer`: it has the secret, belongs to this job, and sent these numbers. */
static void prove(unsigned char proof[ERG_PROOF_BYTES], const char *signer,
                  const struct erg_launch_environment *env, const struct erg_frame *hello,
                  const struct nonces *nonces)
{
    struct erg_text message = {0};
    erg_text_printf(&message, "%s %u %llu %s", signer, hello->rank,
                    (unsigned long long)hello->count, env->job);
    erg_text_add_bytes(&message, "", 1);
    erg_text_add_bytes(&message, (const char *)nonces, sizeof *nonces);
    erg_proof_make(proof, env->secret, message.data, message.count);
    erg_text_release(&message);
}

static const char of_root[] = "root", of_rank[] = "rank";

/* ---- rank 0 ---- */

/*
 * The socket that the launcher listens with, *fd = -1 where there is none at these addresses. It
 * stays open for the next meeting of this process or of one that is started after it.
 */
static int take_listener(int *fd, const struct erg_launch_environment *env,
                         const struct addrinfo *list, struct erg_error *err)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    int listens = 0;
    socklen_t flag = sizeof listens;
    *fd = -1;
    if (env->listener < 3)
        return 0;
    if (getsockopt(env->listener, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag) || !listens ||
        getsockname(env->listener, (struct sockaddr *)&own, &size))
        return erg_fail(err, ERG_FAILED,
                        "rank 0 was started with descriptor %d as its listening socket, but that "
                        "one is closed or something else; expected that what lies between \"ergon "
                        "run\" and rank 0 keeps descriptors open",
                        env->listener);
    for (const struct addrinfo *address = list; address; address = address->ai_next)
        if (address->ai_addrlen == size && !memcmp(address->ai_addr, &own, size)) {
            *fd = fcntl(env->listener, F_DUPFD_CLOEXEC, 3);
            return *fd >= 0
                       ? 0
                       : erg_fail(err, ERG_FAILED, "rank 0 cannot listen: %s", strerror(errno));
        }
    return 0;
}

/* -1 with errno. */
static int listen_at(const struct addrinfo *address)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, address->ai_addr, address->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

static int open_listener(int *fd, const struct erg_launch_environment *env, struct erg_error *err)
{
    struct addrinfo *list;
    bool loopback = is_loopback(env->host);
    if (resolve(&list, loopback ? env->host : NULL, env->port, AI_PASSIVE, err))
        return -1;
    if (take_listener(fd, env, list, err)) {
        freeaddrinfo(list);
        return -1;
    }
    if (!loopback && !env->secret[0])
        erg_log(ERG_LOG_WARNING,
                "rank 0 listens at all addresses of this machine and identifies its ranks only by "
                "the name of the job: set ERGON_JOB_SECRET to one random text for all ranks");
    int code = 0;
    /* Among the "any" addresses, the one of IPv6 accepts IPv4, too; it may not be the first in the
     * list. */
    for (int pass = loopback; pass < 2 && *fd < 0 && code != EADDRINUSE; pass++)
        for (struct addrinfo *address = list; address && *fd < 0; address = address->ai_next) {
            if (pass == 0 && address->ai_family != AF_INET6)
                continue;
            *fd = listen_at(address);
            code = errno;
            if (*fd < 0 && code == EADDRINUSE)
                break;
        }
    freeaddrinfo(list);
    if (*fd >= 0)
        return 0;
    if (code == EADDRINUSE)
        return erg_fail(err, ERG_FAILED,
                        "rank 0 cannot listen at %s port %d: the port is already in use; choose "
                        "another one with the environment variable ERGON_PORT",
                        env->host, env->port);
    return erg_fail(err, ERG_FAILED, "rank 0 cannot listen at %s port %d: %s", env->host, env->port,
                    strerror(code));
}

/* A connection whose other side has not proven that it is of this job. */
struct stranger {
    struct erg_link link;
    int64_t come_ns;
    struct erg_frame hello; /* type 0 until it has come and was answered */
    struct nonces nonces;
};

enum {
    SPARE_STRANGERS = 32, /* in addition to one for each missing rank: the oldest makes room */
    STRANGER_S = 2,       /* a rank that was too slow comes again */
    MOST_ACCEPTED = 64,   /* before those that are there have their turn */
};
struct meeting {
    const struct erg_launch_environment *env;
    struct erg_link *links; /* of the ranks that have come */
    int come;
    struct stranger *items; /* the oldest first */
    size_t count, capacity;
    int64_t deaf_until_ns; /* no descriptor was left for another connection */
    bool was_deaf;
};

static void forget_oldest(struct meeting *meeting)
{
    erg_link_release(&meeting->items[0].link);
    memmove(meeting->items, meeting->items + 1, --meeting->count * sizeof *meeting->items);
}

static void take_strangers(struct meeting *meeting, int listener)
{
    size_t most = SPARE_STRANGERS + (size_t)(meeting->env->world - 1 - meeting->come);
    for (int i = 0; i < MOST_ACCEPTED; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0 && meeting->count > 0) { /* out of descriptors or memory */
            forget_oldest(meeting);
            continue;
        }
        if (fd < 0) {
            meeting->was_deaf = true;
            meeting->deaf_until_ns = erg_now_ns() + 100000000;
            return;
        }
        if (meeting->count >= most)
            forget_oldest(meeting);
        struct stranger stranger = {.come_ns = erg_now_ns()};
        erg_link_init(&stranger.link, fd);
        ERG_PUSH(meeting, items, stranger);
    }
}

static void refuse(struct erg_link *link, const char *sentence)
{
    erg_link_send(link, (struct erg_frame){.type = ERG_FRAME_ABORT}, sentence, strlen(sentence));
    erg_link_finish(link);
    erg_link_release(link);
}

/* Answers a hello. False when it was none. */
static bool challenge(struct meeting *meeting, struct stranger *stranger,
                      const struct erg_frame *frame, const char *payload)
{
    unsigned char answer[CHALLENGE_BYTES];
    if (frame->type != ERG_FRAME_HELLO || frame->payload_bytes != NONCE_BYTES)
        return false;
    stranger->hello = *frame;
    memcpy(stranger->nonces.of_rank, payload, NONCE_BYTES);
    if (erg_random_bytes(stranger->nonces.of_root, NONCE_BYTES, NULL))
        return false;
    memcpy(answer, stranger->nonces.of_root, NONCE_BYTES);
    prove(answer + NONCE_BYTES, of_root, meeting->env, frame, &stranger->nonces);
    erg_link_send(&stranger->link, (struct erg_frame){.type = ERG_FRAME_CHALLENGE}, answer,
                  sizeof answer);
    return erg_link_flush(&stranger->link);
}

static bool has_proven(const struct meeting *meeting, const struct stranger *stranger,
                       const struct erg_frame *frame, const char *payload)
{
    unsigned char proof[ERG_PROOF_BYTES];
    if (frame->type != ERG_FRAME_PROOF || frame->payload_bytes != sizeof proof)
        return false;
    prove(proof, of_rank, meeting->env, &stranger->hello, &stranger->nonces);
    return erg_proof_equal(proof, (const unsigned char *)payload);
}

/* A rank of this job: keeps it, or fails when the job is ill set up. */
static int greet(struct meeting *meeting, struct stranger *stranger, struct erg_error *err)
{
    const struct erg_launch_environment *env = meeting->env;
    const struct erg_frame *hello = &stranger->hello;
    struct erg_error failure = {0};
    int result = 0;
    if (hello->count != (uint64_t)env->world)
        result = erg_fail(&failure, ERG_FAILED,
                          "rank %u was told of a world of %llu ranks, but rank 0 of one of %d",
                          hello->rank, (unsigned long long)hello->count, env->world);
    else if (hello->rank < 1 || hello->rank >= (uint32_t)env->world)
        result = erg_fail(&failure, ERG_FAILED,
                          "a process claims to be rank %u, which a world of %d ranks does not have",
                          hello->rank, env->world);
    else if (meeting->links[hello->rank].fd >= 0)
        result =
            erg_fail(&failure, ERG_FAILED, "two processes say that they are rank %u", hello->rank);
    if (result) {
        refuse(&stranger->link, failure.message);
        *err = failure;
        return result;
    }
    stranger->link.most = ERG_RENDEZVOUS_MOST_BYTES;
    erg_link_send(&stranger->link, (struct erg_frame){.type = ERG_FRAME_BEAT}, NULL, 0);
    erg_link_flush(&stranger->link); /* a broken connection is seen when it is read next */
    meeting->links[hello->rank] = stranger->link;
    meeting->come++;
    return 0;
}

/* 1 to keep it among the strangers, 0 when it has gone from there, -1 when all fail. */
static int hear_stranger(struct meeting *meeting, struct stranger *stranger, struct erg_error *err)
{
    struct erg_frame frame;
    const char *payload;
    int next;
    bool open = erg_link_fill(&stranger->link);
    while ((next = erg_link_next(&stranger->link, &frame, &payload)) > 0) {
        if (stranger->hello.type && has_proven(meeting, stranger, &frame, payload))
            return greet(meeting, stranger, err);
        if (stranger->hello.type || !challenge(meeting, stranger, &frame, payload))
            next = -1;
        if (next < 0)
            break;
    }
    if (next == 0 && open && erg_now_ns() - stranger->come_ns < STRANGER_S * 1000000000LL)
        return 1;
    erg_link_release(&stranger->link);
    return 0;
}

static int hear(struct meeting *meeting, struct erg_error *err)
{
    for (int rank = 1; rank < meeting->env->world; rank++)
        if (meeting->links[rank].fd >= 0 && !erg_link_fill(&meeting->links[rank]))
            return erg_fail(err, ERG_FAILED,
                            "rank %d was lost before all ranks had come: its connection closed",
                            rank);
    size_t kept = 0;
    int result = 0;
    for (size_t i = 0; i < meeting->count; i++) {
        int stays = result == 0 ? hear_stranger(meeting, &meeting->items[i], err) : 1;
        if (stays > 0)
            meeting->items[kept++] = meeting->items[i];
        else if (stays < 0)
            result = -1;
    }
    meeting->count = kept;
    return result;
}

/* "1, 3"; release it. */
static struct erg_text list_missing(const struct meeting *meeting)
{
    struct erg_text missing = {0};
    for (int rank = 1; rank < meeting->env->world; rank++)
        if (meeting->links[rank].fd < 0)
            erg_text_printf(&missing, "%s%d", missing.count ? ", " : "", rank);
    return missing;
}

static double seconds_until(int64_t moment_ns)
{
    return 1e-9 * (double)(moment_ns - erg_now_ns());
}

/* Reports the missing ranks to a person at a terminal. */
static void say_waiting(const struct meeting *meeting, int64_t deadline_ns)
{
    struct erg_text missing = list_missing(meeting);
    erg_log(ERG_LOG_WARNING, "rank 0 waits at %s port %d, for %.0f s more; missing: rank %s",
            meeting->env->host, meeting->env->port, seconds_until(deadline_ns), missing.data);
    erg_text_release(&missing);
}

static int fail_missing(const struct meeting *meeting, struct erg_error *err)
{
    struct erg_text missing = list_missing(meeting);
    erg_fail(err, ERG_FAILED, "not all of %d ranks came to %s port %d in time; missing: rank %s%s",
             meeting->env->world, meeting->env->host, meeting->env->port, missing.data,
             meeting->was_deaf ? "; rank 0 had no file descriptor left for them, see ulimit -n"
                               : "");
    erg_text_release(&missing);
    return -1;
}

static int meet(struct meeting *meeting, int listener, int64_t deadline_ns, struct erg_error *err)
{
    size_t world = (size_t)meeting->env->world;
    int64_t say_at_ns = erg_now_ns() + saying_ns, leave_ns = 0;
    while (meeting->come + 1 < meeting->env->world) {
        if (erg_now_ns() > say_at_ns) {
            say_waiting(meeting, deadline_ns);
            say_at_ns = INT64_MAX;
        }
        struct pollfd *fds = erg_xcalloc(world + meeting->count, sizeof *fds);
        size_t count = 0;
        bool deaf = erg_now_ns() < meeting->deaf_until_ns; /* the longest wait */
        fds[count++] = (struct pollfd){.fd = deaf ? -1 : listener, .events = POLLIN};
        for (size_t rank = 1; rank < world; rank++)
            fds[count++] = (struct pollfd){.fd = meeting->links[rank].fd, .events = POLLIN};
        for (size_t i = 0; i < meeting->count; i++)
            fds[count++] = (struct pollfd){.fd = meeting->items[i].link.fd, .events = POLLIN};
        bool in_time = wait_for(fds, count, deadline_ns);
        free(fds);
        if (check_interrupt(&leave_ns, err))
            return -1;
        if (!in_time)
            return fail_missing(meeting, err);
        if (!deaf)
            take_strangers(meeting, listener);
        if (hear(meeting, err))
            return -1;
    }
    return 0;
}

int erg_meet_listen(struct erg_link *links, const struct erg_launch_environment *env,
                    int64_t deadline_ns, struct erg_error *err)
{
    int listener;
    if (open_listener(&listener, env, err))
        return -1;
    struct meeting meeting = {.env = env, .links = links};
    struct erg_error failure = {0};
    int result = meet(&meeting, listener, deadline_ns, &failure);
    close(listener);
    for (int rank = 1; rank < env->world; rank++) {
        if (links[rank].fd < 0)
            continue;
        if (result)
            refuse(&links[rank], failure.message);
        else
            erg_link_send(&links[rank], (struct erg_frame){.type = ERG_FRAME_WELCOME}, NULL, 0);
    }
    for (size_t i = 0; i < meeting.count; i++)
        erg_link_release(&meeting.items[i].link);
    free(meeting.items);
    if (result && err)
        *err = failure;
    return result;
}

/* ---- every other rank ---- */

/* Whether the other side proves that it is rank 0 of this job; then it gets our proof. */
static bool answer_challenge(struct erg_link *link, const struct erg_launch_environment *env,
                             const struct erg_frame *hello, struct nonces *nonces,
                             const char *payload)
{
    unsigned char proof[ERG_PROOF_BYTES];
    memcpy(nonces->of_root, payload, NONCE_BYTES);
    prove(proof, of_root, env, hello, nonces);
    if (!erg_proof_equal(proof, (const unsigned char *)payload + NONCE_BYTES))
        return false;
    prove(proof, of_rank, env, hello, nonces);
    link->most = (size_t)env->world * ERG_RENDEZVOUS_MOST_BYTES;
    erg_link_send(link, (struct erg_frame){.type = ERG_FRAME_PROOF}, proof, sizeof proof);
    return true;
}

/* 1 when all are here, 0 when this was no connection to rank 0 and another try may be. */
static int await_welcome(struct erg_link *link, const struct erg_launch_environment *env,
                         int64_t deadline_ns, int64_t *leave_ns, struct erg_error *err)
{
    enum { UNKNOWN, PROVEN, ACCEPTED } root = UNKNOWN;
    struct nonces nonces;
    const struct erg_frame hello = {
        .type = ERG_FRAME_HELLO, .rank = (uint32_t)env->rank, .count = (uint64_t)env->world};
    if (erg_random_bytes(nonces.of_rank, NONCE_BYTES, err))
        return -1;
    erg_link_send(link, hello, nonces.of_rank, NONCE_BYTES);
    /* Rank 0 has more information about missing ranks, so it reports first. */
    deadline_ns += 2000000000;
    for (;;) {
        struct erg_frame frame;
        const char *payload;
        bool open = erg_link_flush(link) && erg_link_fill(link);
        int next = erg_link_next(link, &frame, &payload);
        if (next > 0 && root == UNKNOWN && frame.type == ERG_FRAME_HELLO)
            return 0; /* our own: a port can connect to itself while no process listens */
        if (next > 0 && root == UNKNOWN && frame.type == ERG_FRAME_CHALLENGE &&
            frame.payload_bytes == CHALLENGE_BYTES) {
            if (!answer_challenge(link, env, &hello, &nonces, payload))
                return erg_fail(err, ERG_FAILED,
                                "rank %d: rank 0 of another job listens at this port (%s port %d), "
                                "or one that was given another ERGON_JOB_SECRET",
                                env->rank, env->host, env->port);
            root = PROVEN;
            continue;
        }
        if (next > 0 && root != UNKNOWN && frame.type == ERG_FRAME_WELCOME)
            return 1;
        if (next > 0 && root != UNKNOWN && frame.type == ERG_FRAME_ABORT)
            return erg_fail(err, ERG_FAILED, "%.*s", (int)frame.payload_bytes, payload);
        if (next > 0 && root != UNKNOWN && frame.type == ERG_FRAME_BEAT) {
            root = ACCEPTED;
            continue;
        }
        if (next != 0)
            return erg_fail(err, ERG_FAILED,
                            "rank %d found at %s port %d something that is not rank 0", env->rank,
                            env->host, env->port);
        if (!open && root != ACCEPTED)
            return 0; /* too slow, or one of too many */
        if (!open)
            return erg_fail(err, ERG_FAILED,
                            "rank 0 was lost before all ranks had come: its connection closed");
        struct pollfd wait = {.fd = link->fd, .events = POLLIN};
        if (!wait_for(&wait, 1, deadline_ns))
            return erg_fail(err, ERG_FAILED,
                            root == UNKNOWN
                                ? "rank %d connected to %s port %d, but no process there "
                                  "identified itself as rank 0 in time"
                                : "rank %d met rank 0 at %s port %d, but the other ranks did not "
                                  "come in time",
                            env->rank, env->host, env->port);
        if (check_interrupt(leave_ns, err))
            return -1;
    }
}

int erg_meet_connect(struct erg_link *link, const struct erg_launch_environment *env,
                     int64_t deadline_ns, struct erg_error *err)
{
    struct timespec pause = {.tv_nsec = 20000000};
    int64_t say_at_ns = erg_now_ns() + saying_ns, leave_ns = 0;
    int code = ETIMEDOUT;
    do {
        struct addrinfo *list;
        if (erg_now_ns() > say_at_ns) {
            erg_log(ERG_LOG_WARNING,
                    "rank %d of %d waits, for %.0f s more; missing: rank 0 at %s port %d",
                    env->rank, env->world, seconds_until(deadline_ns), env->host, env->port);
            say_at_ns = INT64_MAX;
        }
        if (resolve(&list, env->host, env->port, 0, err))
            return -1;
        for (struct addrinfo *address = list; address; address = address->ai_next) {
            int64_t patience_ns = least(deadline_ns, erg_now_ns() + 3000000000);
            int fd = erg_link_connect(address->ai_addr, address->ai_addrlen, patience_ns);
            if (fd < 0) {
                code = errno;
                continue;
            }
            freeaddrinfo(list);
            list = NULL;
            erg_link_init(link, fd);
            int result = await_welcome(link, env, deadline_ns, &leave_ns, err);
            if (result > 0)
                return 0;
            erg_link_release(link);
            if (result < 0)
                return -1;
            code = ECONNRESET;
            break;
        }
        if (list)
            freeaddrinfo(list);
        if (check_interrupt(&leave_ns, err))
            return -1;
        nanosleep(&pause, NULL);
    } while (erg_now_ns() < deadline_ns);
    return erg_fail(err, ERG_FAILED, "rank %d did not find rank 0 at %s port %d in time: %s",
                    env->rank, env->host, env->port, strerror(code));
}
