#define _GNU_SOURCE /* accept4 */
#include "launch/wire_internal.h"

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/memory.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

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

static int check_interrupt(struct erg_error *err)
{
    return erg_interrupted()
               ? erg_fail(err, ERG_INTERRUPTED, "interrupted while waiting for the other ranks")
               : 0;
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

/* ---- rank 0 ---- */

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
    *fd = -1;
    int code = 0;
    /* Of the addresses "any", the one of IPv6 takes IPv4 too; it may not be first in the list. */
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

/* Those who wait to be met. */
struct meeting {
    const struct erg_launch_environment *env;
    struct erg_link *links; /* of the ranks that have come */
    int come;
    struct erg_link *items; /* connections that have not said who they are */
    size_t count, capacity;
};

static void refuse(struct erg_link *link, const char *sentence)
{
    erg_link_send(link, (struct erg_frame){.type = ERG_FRAME_ABORT}, sentence, strlen(sentence));
    erg_link_finish(link);
    erg_link_release(link);
}

/* A connection that said who it is: keeps it, refuses it, or fails when the job is ill set up. */
static int greet(struct meeting *meeting, struct erg_link *link, const struct erg_frame *frame,
                 const char *payload, struct erg_error *err)
{
    const struct erg_launch_environment *env = meeting->env;
    size_t job_bytes = strlen(env->job);
    if (frame->type != ERG_FRAME_HELLO || frame->payload_bytes != job_bytes ||
        memcmp(payload, env->job, job_bytes) != 0) {
        refuse(link, "rank 0 of another job listens at this port");
        return 0;
    }
    int result = 0;
    if (frame->count != (uint64_t)env->world)
        result = erg_fail(err, ERG_FAILED,
                          "rank %u was told of a world of %llu ranks, but rank 0 of one of %d",
                          frame->rank, (unsigned long long)frame->count, env->world);
    else if (frame->rank < 1 || frame->rank >= (uint32_t)env->world)
        result = erg_fail(err, ERG_FAILED,
                          "a process says that it is rank %u, which a world of %d ranks has not",
                          frame->rank, env->world);
    else if (meeting->links[frame->rank].fd >= 0)
        result = erg_fail(err, ERG_FAILED, "two processes say that they are rank %u", frame->rank);
    if (result) {
        refuse(link, err ? err->message : "the world is ill set up");
        return result;
    }
    meeting->links[frame->rank] = *link;
    link->fd = -1;
    meeting->come++;
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
        struct erg_link *link = &meeting->items[i];
        struct erg_frame frame;
        const char *payload;
        bool open = result == 0 && erg_link_fill(link);
        int next = open ? erg_link_next(link, &frame, &payload) : -1;
        if (next > 0)
            result = greet(meeting, link, &frame, payload, err);
        else if (next == 0)
            meeting->items[kept++] = *link;
        else
            erg_link_release(link);
    }
    meeting->count = kept;
    return result;
}

static int fail_missing(const struct meeting *meeting, struct erg_error *err)
{
    struct erg_text missing = {0};
    for (int rank = 1; rank < meeting->env->world; rank++)
        if (meeting->links[rank].fd < 0)
            erg_text_printf(&missing, "%s%d", missing.count ? ", " : "", rank);
    erg_fail(err, ERG_FAILED, "not all of %d ranks came to %s port %d in time; missing: rank %s",
             meeting->env->world, meeting->env->host, meeting->env->port, missing.data);
    erg_text_release(&missing);
    return -1;
}

static int meet(struct meeting *meeting, int listener, int64_t deadline_ns, struct erg_error *err)
{
    size_t world = (size_t)meeting->env->world;
    while (meeting->come + 1 < meeting->env->world) {
        struct pollfd *fds = erg_xcalloc(world + meeting->count, sizeof *fds);
        size_t count = 0;
        fds[count++] = (struct pollfd){.fd = listener, .events = POLLIN};
        for (size_t rank = 1; rank < world; rank++)
            fds[count++] = (struct pollfd){.fd = meeting->links[rank].fd, .events = POLLIN};
        for (size_t i = 0; i < meeting->count; i++)
            fds[count++] = (struct pollfd){.fd = meeting->items[i].fd, .events = POLLIN};
        bool in_time = wait_for(fds, count, deadline_ns);
        free(fds);
        if (check_interrupt(err))
            return -1;
        if (!in_time)
            return fail_missing(meeting, err);
        int fd;
        while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
            struct erg_link link;
            erg_link_init(&link, fd);
            ERG_PUSH(meeting, items, link);
        }
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
        erg_link_release(&meeting.items[i]);
    free(meeting.items);
    if (result && err)
        *err = failure;
    return result;
}

/* ---- every other rank ---- */

/* A connected socket, or -1 with errno. */
static int connect_to(const struct addrinfo *address, int64_t deadline_ns)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int code = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (code == EINPROGRESS) {
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        socklen_t size = sizeof code;
        while (!wait.revents && wait_for(&wait, 1, deadline_ns) && !erg_interrupted())
            ;
        if (!wait.revents)
            code = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
    }
    if (code == 0)
        return fd;
    close(fd);
    errno = code;
    return -1;
}

/* 1 when all are here, 0 when this was no connection to rank 0 and another try may be. */
static int await_welcome(struct erg_link *link, const struct erg_launch_environment *env,
                         int64_t deadline_ns, struct erg_error *err)
{
    erg_link_send(link,
                  (struct erg_frame){.type = ERG_FRAME_HELLO,
                                     .rank = (uint32_t)env->rank,
                                     .count = (uint64_t)env->world},
                  env->job, strlen(env->job));
    /* Rank 0 knows better who is missing: let it say so. */
    deadline_ns += 2000000000;
    for (;;) {
        struct erg_frame frame;
        const char *payload;
        bool open = erg_link_flush(link) && erg_link_fill(link);
        int next = erg_link_next(link, &frame, &payload);
        if (next > 0 && frame.type == ERG_FRAME_WELCOME)
            return 1;
        if (next > 0 && frame.type == ERG_FRAME_HELLO)
            return 0; /* our own: a port can connect to itself while nobody listens */
        if (next > 0 && frame.type == ERG_FRAME_ABORT)
            return erg_fail(err, ERG_FAILED, "%.*s", (int)frame.payload_bytes, payload);
        if (next != 0)
            return erg_fail(err, ERG_FAILED,
                            "rank %d found at %s port %d something that is not rank 0", env->rank,
                            env->host, env->port);
        if (!open)
            return erg_fail(err, ERG_FAILED,
                            "rank 0 was lost before all ranks had come: its connection closed");
        struct pollfd wait = {.fd = link->fd, .events = POLLIN};
        if (!wait_for(&wait, 1, deadline_ns))
            return erg_fail(err, ERG_FAILED,
                            "rank %d met rank 0 at %s port %d, but the other ranks did not come "
                            "in time",
                            env->rank, env->host, env->port);
        if (check_interrupt(err))
            return -1;
    }
}

int erg_meet_connect(struct erg_link *link, const struct erg_launch_environment *env,
                     int64_t deadline_ns, struct erg_error *err)
{
    struct timespec pause = {.tv_nsec = 20000000};
    int code = ETIMEDOUT;
    do {
        struct addrinfo *list;
        if (resolve(&list, env->host, env->port, 0, err))
            return -1;
        for (struct addrinfo *address = list; address; address = address->ai_next) {
            int64_t patience_ns = least(deadline_ns, erg_now_ns() + 3000000000);
            int fd = connect_to(address, patience_ns);
            if (fd < 0) {
                code = errno;
                continue;
            }
            freeaddrinfo(list);
            list = NULL;
            erg_link_init(link, fd);
            int result = await_welcome(link, env, deadline_ns, err);
            if (result > 0)
                return 0;
            erg_link_release(link);
            if (result < 0)
                return -1;
            break;
        }
        if (list)
            freeaddrinfo(list);
        if (check_interrupt(err))
            return -1;
        nanosleep(&pause, NULL);
    } while (erg_now_ns() < deadline_ns);
    return erg_fail(err, ERG_FAILED, "rank %d did not find rank 0 at %s port %d in time: %s",
                    env->rank, env->host, env->port, strerror(code));
}
