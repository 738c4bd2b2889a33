/* Which connections ergon serve has, and which of them it closes. */
#include "cli/serve_connections.h"

#include "base/clock.h"

#include <string.h>
#include <sys/socket.h>

enum { ITEMS = ERG_SERVE_MOST + 1 };

/* IPv4 addresses as IPv6 writes them; all zero for anything else. */
static struct in6_addr address_of(const struct sockaddr *address)
{
    struct in6_addr found = {0};
    if (address && address->sa_family == AF_INET6) {
        found = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    } else if (address && address->sa_family == AF_INET) {
        found.s6_addr[10] = found.s6_addr[11] = 0xff;
        memcpy(found.s6_addr + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr,
               4);
    }
    return found;
}

/* Its end is then seen by the server's thread, which closes it. */
static void end(struct erg_serve_connection *item)
{
    item->closing = true;
    shutdown(item->file, SHUT_RDWR);
}

/* Ends the oldest when there are more than `most`, of one address or, where it is NULL, of all. */
static void make_room(struct erg_serve_connections *connections, const struct in6_addr *address,
                      int most)
{
    struct erg_serve_connection *oldest = NULL;
    int count = 0;
    for (int i = 0; i < ITEMS; i++) {
        struct erg_serve_connection *item = &connections->items[i];
        if (!item->file || item->closing ||
            (address && memcmp(address, &item->address, sizeof *address) != 0))
            continue;
        count++;
        if (!oldest || item->number < oldest->number)
            oldest = item;
    }
    if (count > most)
        end(oldest);
}

static void add(struct erg_serve_connections *connections, struct MHD_Connection *connection,
                void **own)
{
    const union MHD_ConnectionInfo *file =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    const union MHD_ConnectionInfo *client =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct erg_serve_connection *item = connections->items;
    while (item < connections->items + ITEMS && item->file)
        item++;
    if (!file || item == connections->items + ITEMS)
        return;
    *item =
        (struct erg_serve_connection){.file = file->connect_fd,
                                      .address = address_of(client ? client->client_addr : NULL),
                                      .since_ns = erg_now_ns(),
                                      .number = ++connections->come};
    *own = item;
    struct in6_addr address = item->address;
    make_room(connections, &address, ERG_SERVE_OF_ADDRESS);
    make_room(connections, NULL, ERG_SERVE_CONNECTIONS);
}

void erg_serve_notice(void *context, struct MHD_Connection *connection, void **own,
                      enum MHD_ConnectionNotificationCode code)
{
    struct erg_serve_connections *connections = context;
    pthread_mutex_lock(&connections->lock);
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        add(connections, connection, own);
    else if (*own)
        memset(*own, 0, sizeof(struct erg_serve_connection));
    pthread_mutex_unlock(&connections->lock);
}

void erg_serve_answered(void *context, struct MHD_Connection *connection, void **request,
                        enum MHD_RequestTerminationCode code)
{
    (void)request;
    (void)code;
    struct erg_serve_connections *connections = context;
    const union MHD_ConnectionInfo *own =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    pthread_mutex_lock(&connections->lock);
    if (own && own->socket_context)
        ((struct erg_serve_connection *)own->socket_context)->since_ns = erg_now_ns();
    pthread_mutex_unlock(&connections->lock);
}

void erg_serve_close_late(struct erg_serve_connections *connections)
{
    pthread_mutex_lock(&connections->lock);
    int64_t now_ns = erg_now_ns();
    for (int i = 0; i < ITEMS; i++) {
        struct erg_serve_connection *item = &connections->items[i];
        if (item->file && !item->closing &&
            now_ns - item->since_ns > ERG_SERVE_DEADLINE_S * 1000000000LL)
            end(item);
    }
    pthread_mutex_unlock(&connections->lock);
}
