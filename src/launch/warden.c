/*
 * The warden: a process that outlives the launcher to kill the processes that it had started. The
 * kernel can do that for the ranks alone (PR_SET_PDEATHSIG); their own children, such as loaders of
 * data, would keep memory and GPU.
 */
#define _GNU_SOURCE /* close_range */
#include "launch/launch_internal.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: never returns. It shares nothing with the launcher that could delay an end: neither
 * open files nor the terminal's signals. */
static void keep_watch(int link, pid_t *groups, int most)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    int empty = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        dup2(empty, fd);
    dup2(link, 3);
    close_range(4, ~0u, 0);
    int count = 0;
    pid_t word; /* a group, or one no longer, negative */
    ssize_t size;
    while ((size = recv(3, &word, sizeof word, 0)) == sizeof word || (size < 0 && errno == EINTR)) {
        if (size < 0)
            continue;
        if (word > 0 && count < most)
            groups[count++] = word;
        for (int i = 0; word < 0 && i < count; i++)
            if (groups[i] == -word)
                groups[i] = groups[--count];
    }
    for (int i = 0; i < count; i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

int erg_warden_start(struct erg_warden *warden, int groups, struct erg_error *err)
{
    int links[2];
    *warden = (struct erg_warden){.link = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, links) != 0)
        return erg_fail(err, ERG_FAILED, "cannot watch over ranks: %s", strerror(errno));
    pid_t *list = erg_xcalloc((size_t)groups, sizeof *list);
    warden->pid = fork();
    if (warden->pid == 0)
        keep_watch(links[1], list, groups);
    int error = errno;
    free(list);
    close(links[1]);
    warden->link = links[0];
    if (warden->pid > 0)
        return 0;
    close(links[0]);
    warden->link = -1;
    return erg_fail(err, ERG_FAILED, "cannot watch over ranks: %s", strerror(error));
}

void erg_warden_tell(const struct erg_warden *warden, pid_t word)
{
    ssize_t sent;
    do /* a killed warden matters only at the launcher's own death */
        sent = send(warden->link, &word, sizeof word, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
}

void erg_warden_end(struct erg_warden *warden)
{
    if (warden->link < 0)
        return;
    close(warden->link);
    while (waitpid(warden->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    warden->link = -1;
}
