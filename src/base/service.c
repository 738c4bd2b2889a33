/* The interface between a service manager and a program. */
#include "base/service.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_PASSED = 3 };

/* Whether the variable is a number and, where it names a process, this one. */
static bool number_of(const char *name, long *value)
{
    const char *text = getenv(name);
    return text && erg_parse_long(text, value);
}

int erg_service_socket(void)
{
    long process, count;
    struct sockaddr_un address;
    socklen_t size = sizeof address, type_size = sizeof(int);
    int type = 0;
    if (!number_of("LISTEN_PID", &process) || process != getpid() ||
        !number_of("LISTEN_FDS", &count) || count != 1)
        return -1;
    if (getsockname(FIRST_PASSED, (struct sockaddr *)&address, &size) != 0 ||
        address.sun_family != AF_UNIX ||
        getsockopt(FIRST_PASSED, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0 ||
        type != SOCK_SEQPACKET)
        return -1;
    fcntl(FIRST_PASSED, F_SETFD, FD_CLOEXEC);
    fcntl(FIRST_PASSED, F_SETFL, O_NONBLOCK);
    return FIRST_PASSED;
}

int erg_service_listen(const char *path, int type, struct erg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return erg_fail(err, ERG_FAILED, "listening at '%s': expected a path of at most %zu bytes",
                        path, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path));
    unlink(path);
    const int file = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (file >= 0 && bind(file, (struct sockaddr *)&address, sizeof address) == 0 &&
        chmod(path, 0666) == 0 && listen(file, SOMAXCONN) == 0)
        return file;
    erg_fail(err, ERG_FAILED, "listening at '%s': %s", path, strerror(errno));
    if (file >= 0)
        close(file);
    return -1;
}

void erg_service_notify(const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = path ? strlen(path) : 0;
    if (length < 2 || length >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') /* of the abstract name space */
        address.sun_path[0] = '\0';
    int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (file < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    const struct timeval patience = {.tv_sec = 1};
    const int flags = MSG_NOSIGNAL | (strcmp(state, "WATCHDOG=1") == 0 ? MSG_DONTWAIT : 0);
    (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    ssize_t sent;
    do
        sent = sendto(file, state, strlen(state), flags, (struct sockaddr *)&address, size);
    while (sent < 0 && errno == EINTR);
    close(file);
}

int64_t erg_service_watchdog_ns(void)
{
    long period_us, process;
    if (!number_of("WATCHDOG_USEC", &period_us) || period_us <= 0 ||
        (number_of("WATCHDOG_PID", &process) && process != getpid()))
        return 0;
    return (int64_t)period_us * 1000 / 3;
}
