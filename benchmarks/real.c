/* Sends real traffic: every connection is a client of its own, with its own streams, and no two heads are alike.

   real HOST PORT BASE MIX CONNECTIONS WARM_SECONDS SECONDS [AUTHORIZATION]

   MIX is one of
     producers   appends of one JSON message, with producer headers and a rising Producer-Seq
     json        the same without producer headers
     mixed       8 appends with producer headers, one read from an earlier offset, one read from the start; the client
                 begins a new stream after 40 appends
     get         reads of the last 1 to 8 messages of one of four streams, by offset
     origin      as mixed, from a page: every request has an Origin
     lifetime    as mixed, on streams with a Stream-TTL of an hour

   Each connection has one request in flight. After the streams are made and the warm-up is over, the program prints
   READY and waits for a line on its input; then it measures, and prints one line of JSON. Message n of a stream has
   "n": n, so that whoever reads the streams back can tell lost and repeated messages. Linux only. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST_BYTES = 4096, RESPONSE_BYTES = 1 << 21, OFFSET_BYTES = 128, FILLED = 40, GET_STREAMS = 4, LAST = 8 };
enum { APPENDS_PER_STREAM = 40, LATENCY_MAX_US = 2000000, ANSWER_SECONDS_MAX = 20 };
typedef enum { PRODUCERS, JSON, MIXED, GET } Mix;
typedef enum { CREATE, APPEND, READ } Kind;

typedef struct {
    int fd, id, stream, n, turn;
    Kind kind;
    int expected; /* messages in the page */
    uint64_t random, began_us, requests;
    char offsets[GET_STREAMS][LAST][OFFSET_BYTES]; /* before each of the last messages */
    char earlier[OFFSET_BYTES];
    int earlier_n;
    char next[OFFSET_BYTES];
    char request[REQUEST_BYTES];
    size_t request_bytes;
    char *response;
    size_t response_bytes;
} Client;

static const char *host, *base, *authorization = "", *origin = "", *lifetime = "";
static Mix mix;
static uint32_t *latencies;
static uint64_t done, refused, broken, wrong, appended;
static int measuring;

static uint64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void die(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t random_of(Client *c) {
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

/* The head that every client library sends; the trace context makes each head unique, as tracing does. */
static size_t head_of(Client *c, const char *method, const char *query) {
    return (size_t)snprintf(c->request, REQUEST_BYTES,
        "%s %s/client-%d/run-%d%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: real-traffic/1\r\nAccept: */*\r\n%s%s"
        "traceparent: 00-%016llx%016llx-%016llx-01\r\n",
        method, base, c->id, c->stream, query, host, authorization, origin, (unsigned long long)random_of(c),
        (unsigned long long)random_of(c), (unsigned long long)++c->requests);
}

static void create(Client *c) {
    size_t at = head_of(c, "PUT", "");
    at += (size_t)snprintf(c->request + at, REQUEST_BYTES - at,
                           "%sContent-Type: application/json\r\nContent-Length: 0\r\n\r\n", lifetime);
    c->request_bytes = at;
    c->kind = CREATE;
    c->n = 0;
}

static void append(Client *c) {
    char body[600];
    size_t size = 100 + random_of(c) % 401;
    size_t at = (size_t)snprintf(body, sizeof body, "{\"n\":%d,\"client\":%d,\"role\":\"assistant\",\"text\":\"", c->n, c->id);
    for (uint64_t word = 0; at < size - 2; at++, word >>= 5) {
        if (!word) word = random_of(c);
        body[at] = " etaoinshrdlucmfwypvbgkjqxz.,?-!"[word & 31];
    }
    body[at++] = '"';
    body[at++] = '}';
    size_t head = head_of(c, "POST", "");
    head += (size_t)snprintf(c->request + head, REQUEST_BYTES - head,
                             "Content-Type: application/json\r\nContent-Length: %zu\r\n", at);
    if (mix == PRODUCERS || mix == MIXED)
        head += (size_t)snprintf(c->request + head, REQUEST_BYTES - head,
                                 "Producer-Id: writer-%d\r\nProducer-Epoch: 0\r\nProducer-Seq: %d\r\n", c->id, c->n);
    head += (size_t)snprintf(c->request + head, REQUEST_BYTES - head, "\r\n");
    memcpy(c->request + head, body, at);
    c->request_bytes = head + at;
    c->kind = APPEND;
}

static void read_from(Client *c, const char *offset, int expected) {
    char query[OFFSET_BYTES + 16];
    snprintf(query, sizeof query, "?offset=%s", offset);
    size_t at = head_of(c, "GET", query);
    memcpy(c->request + at, "\r\n", 2);
    c->request_bytes = at + 2;
    c->kind = READ;
    c->expected = expected;
}

static void prepare(Client *c) {
    int turn = c->turn++;
    if (mix == GET) {
        c->stream = (int)(random_of(c) % GET_STREAMS);
        int last = (int)(random_of(c) % LAST);
        read_from(c, c->offsets[c->stream][last], LAST - last);
    } else if (mix != MIXED) {
        append(c);
    } else if (turn % 10 == 8) {
        read_from(c, c->earlier, c->n - c->earlier_n);
    } else if (turn % 10 == 9) {
        read_from(c, "-1", c->n);
    } else if (c->n >= APPENDS_PER_STREAM) {
        c->turn = turn;
        c->stream++;
        create(c);
    } else {
        append(c);
    }
}

/* The value of a header, or NULL; the head ends in an empty line. */
static const char *header(const char *head, const char *name) {
    size_t size = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line && line[2] != '\r'; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, size) && line[2 + size] == ':') {
            for (line += 3 + size; *line == ' '; line++) {}
            return line;
        }
    return NULL;
}

/* Whether the response is whole; *body is where its body begins. */
static int is_whole(Client *c, char **body) {
    c->response[c->response_bytes] = 0;
    char *end = strstr(c->response, "\r\n\r\n");
    if (!end) return 0;
    *body = end + 4;
    size_t got = c->response_bytes - (size_t)(*body - c->response);
    if (!strncmp(c->response + 9, "204", 3) || !strncmp(c->response + 9, "304", 3)) return 1;
    const char *length = header(c->response, "content-length");
    if (length) return got >= strtoul(length, NULL, 10);
    return got >= 5 && !memcmp(c->response + c->response_bytes - 5, "0\r\n\r\n", 5);
}

static int messages_in(const char *body) {
    int found = 0;
    for (const char *at = body; (at = strstr(at, "{\"n\":")); at++) found++;
    return found;
}

static void keep_offset(Client *c) {
    const char *value = header(c->response, "stream-next-offset");
    if (!value) return;
    size_t size = strcspn(value, "\r");
    if (size >= OFFSET_BYTES) die("an offset is too long");
    memcpy(c->next, value, size);
    c->next[size] = 0;
}

static void judge(Client *c, const char *body) {
    if (c->response[9] != '2') {
        if (!refused++) fprintf(stderr, "%.*s\n", 300, c->response);
        if (c->kind == APPEND) c->n++;
        return;
    }
    if (c->kind == READ && messages_in(body) != c->expected) {
        if (!wrong++) fprintf(stderr, "expected %d messages: %s\n%.300s\n", c->expected, c->request, c->response);
        return;
    }
    if (c->kind != READ) keep_offset(c);
    if (c->kind == APPEND) {
        c->n++;
        appended++;
        if (c->turn % 10 == 5) {
            strcpy(c->earlier, c->next);
            c->earlier_n = c->n;
        }
    } else if (c->kind == CREATE) {
        strcpy(c->earlier, c->next);
        c->earlier_n = 0;
    }
    if (measuring) {
        uint64_t us = now_us() - c->began_us;
        latencies[us < LATENCY_MAX_US ? us : LATENCY_MAX_US - 1]++;
        done++;
    }
}

static void send_request(Client *c) {
    c->response_bytes = 0;
    c->began_us = now_us();
    size_t sent = 0;
    while (sent < c->request_bytes) {
        ssize_t n = send(c->fd, c->request + sent, c->request_bytes - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) die("send");
        if (n > 0) sent += (size_t)n;
    }
}

/* Take what has arrived; whether the response is whole. */
static int receive(Client *c) {
    char *body;
    ssize_t n = recv(c->fd, c->response + c->response_bytes, RESPONSE_BYTES - 1 - c->response_bytes, 0);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) die("the server closed a connection");
    c->response_bytes += (size_t)n;
    if (!is_whole(c, &body)) return 0;
    judge(c, body);
    return 1;
}

/* Before the run: one request after another, waiting for each. */
static void exchange(Client *c) {
    send_request(c);
    while (!receive(c)) {}
}

static void set_up(Client *c) {
    int streams = mix == GET ? GET_STREAMS : 1;
    for (c->stream = 0; c->stream < streams; c->stream++) {
        create(c);
        exchange(c);
        while (mix == GET && c->n < FILLED) {
            if (c->n >= FILLED - LAST) strcpy(c->offsets[c->stream][c->n - (FILLED - LAST)], c->next);
            append(c);
            exchange(c);
        }
    }
    c->stream = 0;
}

static void open_connection(Client *c, const struct sockaddr_in *to) {
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (const struct sockaddr *)to, sizeof *to)) die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static void run(Client *clients, int count, int poll, double seconds) {
    uint64_t end = now_us() + (uint64_t)(seconds * 1e6), last = now_us();
    int busy = count;
    struct epoll_event events[256];
    for (int i = 0; i < count; i++) {
        prepare(&clients[i]);
        send_request(&clients[i]);
    }
    while (busy) {
        int found = epoll_wait(poll, events, 256, 100);
        uint64_t now = now_us();
        if (found) last = now;
        if (now > last + ANSWER_SECONDS_MAX * 1000000ull) {
            broken += (uint64_t)busy;
            return;
        }
        for (int i = 0; i < found; i++) {
            Client *c = events[i].data.ptr;
            if (!receive(c)) continue;
            if (now >= end) {
                busy--;
            } else {
                prepare(c);
                send_request(c);
            }
        }
    }
}

static uint32_t percentile(double share) {
    uint64_t rank = (uint64_t)((double)done * share), seen = 0;
    if (rank >= done) rank = done ? done - 1 : 0;
    for (uint32_t us = 0; us < LATENCY_MAX_US; us++)
        if ((seen += latencies[us]) > rank) return us;
    return 0;
}

static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    if (argc < 8) return fprintf(stderr, "see the comment at the top of real.c\n"), 2;
    host = argv[1];
    base = argv[3];
    if (!strcmp(argv[4], "origin")) origin = "Origin: http://localhost:5173\r\n";
    if (!strcmp(argv[4], "lifetime")) lifetime = "Stream-TTL: 3600\r\n";
    const char *mixes[] = {"producers", "json", "mixed", "get"}, *name = *origin || *lifetime ? "mixed" : argv[4];
    for (mix = PRODUCERS; mix < GET && strcmp(name, mixes[mix]); mix++) {}
    int count = atoi(argv[5]), poll = epoll_create1(0);
    char line[512];
    if (argc > 8) {
        snprintf(line, sizeof line, "Authorization: %s\r\n", argv[8]);
        authorization = strdup(line);
    }
    latencies = calloc(LATENCY_MAX_US, sizeof *latencies);
    Client *clients = calloc((size_t)count, sizeof *clients);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    inet_pton(AF_INET, host, &to.sin_addr);
    for (int i = 0; i < count; i++) {
        Client *c = &clients[i];
        c->id = i;
        c->random = 0x9e3779b97f4a7c15ull * (uint64_t)(i + 1);
        c->response = malloc(RESPONSE_BYTES);
        open_connection(c, &to);
        set_up(c);
        /* Again below: a server may close connections that rest while others are set up. */
        close(c->fd);
    }
    for (int i = 0; i < count; i++) {
        Client *c = &clients[i];
        open_connection(c, &to);
        fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
    }
    run(clients, count, poll, atof(argv[6]));
    printf("READY\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 1;
    measuring = 1;
    double cpu = cpu_seconds();
    uint64_t began = now_us();
    run(clients, count, poll, atof(argv[7]));
    double seconds = (double)(now_us() - began) / 1e6;
    printf("{\"seconds\": %.3f, \"done\": %llu, \"refused\": %llu, \"broken\": %llu, \"wrong\": %llu, \"cpu_seconds\": %.3f, "
           "\"p50\": %u, \"p99\": %u, \"p99.9\": %u, \"max\": %u, \"appended\": %llu, \"streams\": [",
           seconds, (unsigned long long)done, (unsigned long long)refused, (unsigned long long)broken,
           (unsigned long long)wrong, cpu_seconds() - cpu, percentile(0.5), percentile(0.99), percentile(0.999),
           percentile(1.0), (unsigned long long)appended);
    for (int i = 0; i < count; i++) printf("%s[%d, %d]", i ? ", " : "", clients[i].stream, clients[i].n);
    printf("]}\n");
    return 0;
}
