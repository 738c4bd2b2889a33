/* The daemon's thread that serves clients: connections, signals, time; its start and end. */
#define _GNU_SOURCE /* accept4, getrandom */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/service.h"
#include "base/thread.h"
#include "daemon/daemon_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* The source of an epoll event; connections and processes also have an index and a generation. */
enum source { OF_LISTENER, OF_GUESTS, OF_NEWS, OF_SIGNALS, OF_CONNECTION, OF_PROCESS };
enum { EVENTS = 64, PACKETS_AT_ONCE = 8, ACCEPTED_AT_ONCE = 16 };
static const int64_t patience_ns = 10000000000;

static uint64_t mark(enum source source, size_t index, uint32_t generation)
{
    return (uint64_t)generation << 32 | index << 8 | (uint64_t)source;
}

static bool watch(const struct erg_daemon *daemon, int fd, uint64_t data)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    return epoll_ctl(daemon->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* ---- connections ---- */

struct erg_daemon_connection *erg_daemon_asker_of(struct erg_daemon *daemon,
                                                  const struct erg_daemon_asker *asker)
{
    if (asker->connection < 0)
        return NULL;
    struct erg_daemon_connection *found = &daemon->connections[asker->connection];
    return found->fd >= 0 && found->generation == asker->generation ? found : NULL;
}

bool erg_daemon_send(struct erg_daemon *daemon, struct erg_daemon_connection *to, bool sample)
{
    struct erg_wire_writer *writer = &daemon->writer;
    erg_wire_end(writer);
    if (to->doomed)
        return false;
    ssize_t sent;
    do
        sent = send(to->fd, writer->bytes, writer->count, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && !(sample && (errno == EAGAIN || errno == EWOULDBLOCK)))
        to->doomed = true;
    return sent >= 0;
}

static void close_connection(struct erg_daemon *daemon, struct erg_daemon_connection *gone,
                             const char *reason)
{
    gone->doomed = true;
    erg_daemon_leases_end_of(daemon, gone, reason);
    close(gone->pidfd);
    close(gone->fd);
    gone->fd = -1;
    gone->generation++;
    while (daemon->used > 0 && daemon->connections[daemon->used - 1].fd < 0)
        daemon->used--;
}

/* Sends a packet to a client that is not, or no longer, accepted. */
static void say_no(struct erg_daemon *daemon, int fd, const char *why)
{
    erg_wire_begin_answer(&daemon->writer, 0, 0, ERG_WIRE_BUSY, 0, why);
    erg_wire_end(&daemon->writer);
    (void)!send(fd, daemon->writer.bytes, daemon->writer.count, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/*
 * A free slot for a user, or NULL. If the user's slots, or all except root's, are taken, the
 * connection without lease that has been silent longest makes room.
 */
static struct erg_daemon_connection *place_for(struct erg_daemon *daemon, uid_t uid)
{
    int own = 0, all = 0;
    int most = daemon->options->per_user ? daemon->options->per_user : ERG_DAEMON_PER_USER;
    int64_t idle_ms = daemon->options->idle_ms ? daemon->options->idle_ms : ERG_DAEMON_IDLE_MS;
    int64_t before_ns = erg_now_ns() - idle_ms * 1000000;
    struct erg_daemon_connection *found = NULL, *silent = NULL;
    for (int i = 0; i < ERG_DAEMON_CONNECTIONS; i++) {
        struct erg_daemon_connection *at = &daemon->connections[i];
        all += at->fd >= 0;
        own += at->fd >= 0 && at->peer.uid == uid;
        if (at->fd < 0 && !found)
            found = at;
    }
    if (uid == 0 || (own < most && all < ERG_DAEMON_CONNECTIONS - ERG_DAEMON_FOR_ROOT))
        return found;
    for (int i = 0; i < ERG_DAEMON_CONNECTIONS; i++) {
        struct erg_daemon_connection *at = &daemon->connections[i];
        if (at->fd >= 0 && at->heard_ns < (silent ? silent->heard_ns : before_ns) &&
            (own < most ? at->peer.uid != 0 : at->peer.uid == uid) && !at->metrics &&
            !erg_daemon_has_lease(daemon, at))
            silent = at;
    }
    if (silent) {
        say_no(daemon, silent->fd, "it was silent without a lease, and its place was needed");
        close_connection(daemon, silent, "its place was needed");
    }
    return silent;
}

static void seat(struct erg_daemon *daemon, int fd, int pidfd, const struct erg_daemon_peer *peer,
                 bool guest)
{
    struct erg_daemon_connection *place = place_for(daemon, peer->uid);
    if (!place) {
        say_no(daemon, fd, "there are too many connections already");
        close(fd);
        close(pidfd);
        return;
    }
    size_t index = (size_t)(place - daemon->connections);
    uint32_t generation = place->generation;
    *place = (struct erg_daemon_connection){.fd = fd,
                                            .pidfd = pidfd,
                                            .generation = generation,
                                            .peer = *peer,
                                            .heard_ns = erg_now_ns(),
                                            .guest = guest};
    daemon->used = daemon->used > index ? daemon->used : index + 1;
    if (!watch(daemon, fd, mark(OF_CONNECTION, index, generation)) ||
        !watch(daemon, pidfd, mark(OF_PROCESS, index, generation)))
        place->doomed = true;
}

static void accept_some(struct erg_daemon *daemon)
{
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        int fd = accept4(daemon->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        struct erg_daemon_peer peer;
        int pidfd;
        if (fd < 0)
            return;
        if (erg_daemon_peer_of(fd, daemon->options->proc, &peer, &pidfd)) {
            seat(daemon, fd, pidfd, &peer, false);
        } else {
            say_no(daemon, fd, "the connected process has ended");
            close(fd);
        }
    }
}

static void take_guest(struct erg_daemon *daemon)
{
    struct erg_daemon_guest guest;
    if (read(daemon->options->guests, &guest, sizeof guest) == (ssize_t)sizeof guest)
        seat(daemon, guest.fd, guest.pidfd, &guest.peer, true);
}

static void receive_some(struct erg_daemon *daemon, struct erg_daemon_connection *from)
{
    static unsigned char bytes[ERG_WIRE_MOST]; /* used by this thread only */
    for (int i = 0; i < PACKETS_AT_ONCE && !from->doomed; i++) {
        ssize_t count = recv(from->fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC);
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (count <= 0)
            from->doomed = true;
        else /* longer than the buffer: its header is wrong or has another length */
            erg_daemon_request(daemon, from, bytes, count > ERG_WIRE_MOST ? 0 : (size_t)count,
                               erg_now_ns());
    }
}

/* ---- signals ---- */

/* A thread, because names of users and groups may come from a network that does not answer. */
static void *read_rules(void *context)
{
    struct erg_daemon *daemon = context;
    daemon->rules_failed = erg_daemon_config_load(&daemon->rules, daemon->options->config,
                                                  daemon->gpus, &daemon->rules_error) != 0;
    __atomic_store_n(&daemon->rules_state, ERG_RULES_READ, __ATOMIC_RELEASE);
    erg_thread_wake(daemon->news);
    return NULL;
}

static void read_rules_again(struct erg_daemon *daemon)
{
    daemon->rules_asked = true;
    if (daemon->rules_state != ERG_RULES_STAY)
        return; /* read again when that has ended */
    daemon->rules_asked = false;
    daemon->rules_state = ERG_RULES_READING;
    if (erg_thread_start(&daemon->rules_reader, read_rules, daemon) != 0) {
        daemon->rules_state = ERG_RULES_STAY;
        erg_log(ERG_LOG_ERROR, "the rules stay unchanged: no thread to read them");
    }
}

static void take_rules(struct erg_daemon *daemon)
{
    if (__atomic_load_n(&daemon->rules_state, __ATOMIC_ACQUIRE) != ERG_RULES_READ)
        return;
    pthread_join(daemon->rules_reader, NULL);
    daemon->rules_state = ERG_RULES_STAY;
    if (daemon->rules_failed) {
        char why[1200];
        erg_log(ERG_LOG_ERROR, "the rules stay unchanged: %s", daemon->rules_error.message);
        erg_daemon_audit_line(daemon->audit, "config", ",\"taken\":false,\"reason\":\"%s\"",
                              erg_text_escape_json(why, 600, daemon->rules_error.message));
    } else {
        daemon->rules.period_ns = daemon->config.period_ns; /* the sampler keeps its period */
        erg_daemon_config_release(&daemon->config);
        daemon->config = daemon->rules;
        erg_daemon_audit_reopen(daemon->audit, daemon->config.audit);
        erg_daemon_audit_line(daemon->audit, "config", ",\"taken\":true,\"rules\":%zu",
                              daemon->config.rule_count);
        erg_daemon_leases_judge(daemon, "the rules have changed");
    }
    if (daemon->rules_asked)
        read_rules_again(daemon);
}

static void take_signals(struct erg_daemon *daemon)
{
    struct signalfd_siginfo info;
    while (read(daemon->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP)
            read_rules_again(daemon);
        else
            daemon->stop = true;
    }
}

/* ---- the loop ---- */

static void take_event(struct erg_daemon *daemon, uint64_t data)
{
    enum source source = data & 0xff;
    uint64_t count;
    if (source == OF_LISTENER) {
        accept_some(daemon);
    } else if (source == OF_GUESTS) {
        take_guest(daemon);
    } else if (source == OF_SIGNALS) {
        take_signals(daemon);
    } else if (source == OF_NEWS) {
        (void)!read(daemon->news, &count, sizeof count);
        take_rules(daemon);
        erg_daemon_leases_outcomes(daemon);
    } else {
        struct erg_daemon_asker asker = {.connection = (int)(data >> 8 & 0xffffff),
                                         .generation = (uint32_t)(data >> 32)};
        struct erg_daemon_connection *at = erg_daemon_asker_of(daemon, &asker);
        if (at && source == OF_PROCESS)
            close_connection(daemon, at, "its process has ended");
        else if (at)
            receive_some(daemon, at);
    }
}

static void bury(struct erg_daemon *daemon)
{
    for (size_t i = daemon->used; i-- > 0;)
        if (daemon->connections[i].fd >= 0 && daemon->connections[i].doomed)
            close_connection(daemon, &daemon->connections[i], "its connection has ended");
}

static void loop(struct erg_daemon *daemon)
{
    struct epoll_event events[EVENTS];
    int64_t watchdog_ns = erg_service_watchdog_ns(), alive_ns = 0;
    while (!daemon->stop) {
        int64_t now_ns = erg_now_ns(), next_ns = erg_daemon_publish(daemon, now_ns);
        int64_t expire_ns = erg_daemon_leases_expire(daemon, now_ns);
        if (watchdog_ns && alive_ns <= now_ns) {
            erg_service_notify("WATCHDOG=1");
            alive_ns = now_ns + watchdog_ns;
        }
        next_ns = expire_ns < next_ns ? expire_ns : next_ns;
        next_ns = watchdog_ns && alive_ns < next_ns ? alive_ns : next_ns;
        bury(daemon);
        int64_t left_ms = (next_ns - now_ns + 999999) / 1000000;
        int count = epoll_wait(daemon->epoll, events, EVENTS, left_ms > 0 ? (int)left_ms : 0);
        for (int i = 0; i < count; i++)
            take_event(daemon, events[i].data.u64);
        bury(daemon);
    }
}

/* Resets all that is leased, as far as drivers answer. */
static void wait_until_free(struct erg_daemon *daemon, int64_t wait_ns)
{
    int64_t end_ns = erg_now_ns() + wait_ns, now_ns;
    uint64_t count;
    erg_daemon_leases_outcomes(daemon);
    while (!erg_daemon_leases_are_free(daemon) && (now_ns = erg_now_ns()) < end_ns) {
        struct pollfd wait = {.fd = daemon->news, .events = POLLIN};
        if (poll(&wait, 1, (int)((end_ns - now_ns) / 1000000) + 1) > 0)
            (void)!read(daemon->news, &count, sizeof count);
        take_rules(daemon);
        erg_daemon_leases_outcomes(daemon);
    }
}

static void end_all(struct erg_daemon *daemon)
{
    for (size_t i = 0; i < daemon->count; i++)
        for (enum erg_knob knob = 1; knob < ERG_KNOBS; knob++)
            erg_daemon_lease_end(daemon, i, knob, ERG_WIRE_DAEMON_ENDS, "the daemon ends");
    wait_until_free(daemon, patience_ns);
}

/* ---- start ---- */

static int listen_at(struct erg_daemon *daemon, struct erg_error *err)
{
    char path[600];
    snprintf(path, sizeof path, "%s%s",
             daemon->options->socket ? daemon->options->socket : daemon->options->folder,
             daemon->options->socket ? "" : "/ergond.sock");
    if (!daemon->activated) /* an existing socket belongs to an ended daemon, since we hold the lock
                             */
        daemon->listener = erg_service_listen(path, SOCK_SEQPACKET, err);
    return daemon->listener < 0 ? -1 : 0;
}

/* Waits for each GPU's bounds, which its worker reads; does not wait for one that hangs. */
static void await_bounds(const struct erg_daemon *daemon)
{
    int64_t end_ns = erg_now_ns() + patience_ns / 10;
    for (size_t i = 0; i < daemon->count; i++)
        while (!erg_daemon_worker_bounds(daemon->items[i].worker) && erg_now_ns() < end_ns)
            erg_sleep_ns(1000000);
}

static int start_workers(struct erg_daemon *daemon, struct erg_error *err)
{
    daemon->count = erg_gpus_count(daemon->gpus);
    if (daemon->count > ERG_WIRE_GPUS)
        daemon->count = ERG_WIRE_GPUS;
    daemon->items = erg_xcalloc(daemon->count, sizeof *daemon->items);
    for (size_t i = 0; i < daemon->count; i++) {
        struct erg_daemon_gpu *item = &daemon->items[i];
        item->claim = -1;
        for (int knob = 0; knob < ERG_KNOBS; knob++)
            item->leases[knob].owner.connection = item->leases[knob].waiter.connection = -1;
        item->worker =
            erg_daemon_worker_start(daemon->gpus, i, daemon->news, daemon->config.persistence);
        if (!item->worker) {
            daemon->count = i;
            return erg_fail(err, ERG_FAILED, "starting the worker of GPU %zu: no thread", i);
        }
    }
    await_bounds(daemon);
    return 0;
}

static int open_files(struct erg_daemon *daemon, struct erg_error *err)
{
    sigset_t caught;
    struct rlimit files;
    sigemptyset(&caught);
    sigaddset(&caught, SIGTERM);
    sigaddset(&caught, SIGINT);
    sigaddset(&caught, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &caught, NULL);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < 1024) {
        files.rlim_cur = files.rlim_max < 1024 ? files.rlim_max : 1024;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    daemon->epoll = epoll_create1(EPOLL_CLOEXEC);
    daemon->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    daemon->signals = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    if (daemon->epoll < 0 || daemon->news < 0 || daemon->signals < 0 ||
        getrandom(daemon->id, sizeof daemon->id, 0) != (ssize_t)sizeof daemon->id)
        return erg_fail(err, ERG_FAILED, "starting the daemon: %s", strerror(errno));
    return 0;
}

/* Resetting leases needs no rules: an invalid file must not prevent it. */
static int load_rules(struct erg_daemon *daemon, struct erg_error *err)
{
    int result =
        erg_daemon_config_load(&daemon->config, daemon->options->config, daemon->gpus, err);
    return daemon->restoring ? 0 : result;
}

static int begin(struct erg_daemon *daemon, struct erg_error *err)
{
    daemon->listener = daemon->restoring ? -1 : erg_service_socket();
    daemon->activated = daemon->listener >= 0;
    if (open_files(daemon, err) != 0 || erg_daemon_files_lock(daemon, err) != 0 ||
        erg_gpus_open(&daemon->gpus, "all", err) != 0 || load_rules(daemon, err) != 0 ||
        erg_daemon_audit_open(&daemon->audit, daemon->config.audit, err) != 0 ||
        start_workers(daemon, err) != 0)
        return -1;
    erg_daemon_audit_line(daemon->audit, "start", ",\"pid\":%ld,\"gpus\":%zu,\"rules\":%zu",
                          (long)getpid(), daemon->count, daemon->config.rule_count);
    /* Leases of an earlier daemon end before clients are accepted. */
    if (erg_daemon_files_read(daemon, err) != 0)
        return -1;
    wait_until_free(daemon, patience_ns);
    return 0;
}

static int serve(struct erg_daemon *daemon, struct erg_error *err)
{
    const struct erg_daemon_options *options = daemon->options;
    if (begin(daemon, err) != 0 || erg_daemon_readings_start(daemon, err) != 0 ||
        listen_at(daemon, err) != 0 ||
        (options->opened && options->opened(options->context, err) != 0))
        return -1;
    if (!watch(daemon, daemon->listener, mark(OF_LISTENER, 0, 0)) ||
        !watch(daemon, daemon->news, mark(OF_NEWS, 0, 0)) ||
        !watch(daemon, daemon->signals, mark(OF_SIGNALS, 0, 0)) ||
        (options->guests && !watch(daemon, options->guests, mark(OF_GUESTS, 0, 0))))
        return erg_fail(err, ERG_FAILED, "starting the daemon: %s", strerror(errno));
    erg_service_notify("READY=1");
    erg_log(ERG_LOG_INFO, "%zu GPUs, %zu rules", daemon->count, daemon->config.rule_count);
    loop(daemon);
    erg_service_notify("STOPPING=1");
    end_all(daemon);
    return 0;
}

static void release(struct erg_daemon *daemon)
{
    if (daemon->rules_state != ERG_RULES_STAY) {
        pthread_join(daemon->rules_reader, NULL);
        if (!daemon->rules_failed)
            erg_daemon_config_release(&daemon->rules);
    }
    for (int i = 0; i < ERG_DAEMON_CONNECTIONS; i++)
        if (daemon->connections[i].fd >= 0) {
            close(daemon->connections[i].fd);
            close(daemon->connections[i].pidfd);
        }
    for (size_t i = 0; i < daemon->count; i++) {
        erg_daemon_worker_stop(daemon->items[i].worker);
        if (daemon->items[i].claim >= 0)
            close(daemon->items[i].claim);
    }
    erg_daemon_readings_stop(daemon);
    erg_daemon_audit_close(daemon->audit);
    erg_daemon_config_release(&daemon->config);
    if (daemon->gpus)
        erg_gpus_close(daemon->gpus);
    int files[] = {daemon->epoll, daemon->news, daemon->signals, daemon->listener, daemon->lock};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i] >= 0)
            close(files[i]);
    erg_text_release(&daemon->elsewhere);
    free(daemon->items);
    free(daemon);
}

static struct erg_daemon *new_daemon(const struct erg_daemon_options *options)
{
    struct erg_daemon *daemon = erg_xcalloc(1, sizeof *daemon);
    daemon->options = options;
    daemon->epoll = daemon->news = daemon->signals = daemon->listener = daemon->lock = -1;
    for (int i = 0; i < ERG_DAEMON_CONNECTIONS; i++)
        daemon->connections[i].fd = -1;
    return daemon;
}

int erg_daemon_run(const struct erg_daemon_options *options, struct erg_error *err)
{
    struct erg_daemon *daemon = new_daemon(options);
    int result = serve(daemon, err);
    release(daemon);
    return result;
}

int erg_daemon_restore(const struct erg_daemon_options *options, struct erg_error *err)
{
    struct erg_daemon *daemon = new_daemon(options);
    daemon->restoring = true;
    int result = begin(daemon, err);
    if (result == 0 && !erg_daemon_leases_are_free(daemon))
        result = erg_fail(err, ERG_NO_DEVICE,
                          "restoring settings after a killed daemon: a GPU may still be locked or "
                          "limited, expected drivers that answer");
    else if (result == 0 && daemon->elsewhere.count)
        result = erg_fail(err, ERG_NO_DEVICE,
                          "restoring settings after a killed daemon: the first line of '%s/leases' "
                          "is not a lease of a present GPU: '%.*s'",
                          options->folder, (int)strcspn(daemon->elsewhere.data, "\n"),
                          daemon->elsewhere.data);
    release(daemon);
    return result;
}
