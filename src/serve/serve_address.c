/* The addresses of ergon's servers. */
#include "serve/serve_address.h"

#include "base/text.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int erg_serve_resolve(const char *option, const char *listen, struct addrinfo **found,
                      struct erg_error *err)
{
    char host[256], *end;
    const char *colon = strrchr(listen, ':');
    long port;
    if (!colon || colon == listen || (size_t)(colon - listen) >= sizeof host ||
        !erg_parse_long(colon + 1, &port) || port < 0 || port > 65535)
        return erg_fail(err, ERG_USAGE,
                        "--%s got \"%s\", expected an address and a port, as in "
                        "\"127.0.0.1:9464\"",
                        option, listen);
    bool brackets = listen[0] == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - listen) - brackets, listen + brackets);
    end = strchr(host, ']');
    if (end)
        *end = '\0';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    int result = getaddrinfo(host, colon + 1, &hints, found);
    if (result == 0)
        return 0;
    return erg_fail(err, ERG_USAGE, "--%s got \"%s\", but the address was not found: %s", option,
                    listen, gai_strerror(result));
}

int erg_serve_listen(const struct addrinfo *address, int *opened)
{
    int on = 1;
    int listener = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(listener, address->ai_addr, address->ai_addrlen) == 0 &&
        listen(listener, SOMAXCONN) == 0) {
        *opened = listener;
        return 0;
    }
    int reason = errno;
    if (listener >= 0)
        close(listener);
    return reason;
}

int erg_serve_port(int listener)
{
    char port[sizeof "65535"];
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(listener, (struct sockaddr *)&address, &size) != 0 ||
        getnameinfo((struct sockaddr *)&address, size, NULL, 0, port, sizeof port,
                    NI_NUMERICSERV) != 0)
        return 0;
    return atoi(port);
}

bool erg_serve_is_loopback(const struct addrinfo *address)
{
    if (address->ai_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address->ai_addr;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in = (const void *)address->ai_addr;
    return address->ai_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in->sin6_addr);
}
