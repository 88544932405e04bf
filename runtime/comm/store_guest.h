/* What the server makes of the bytes of its connections, without sockets: beginnings, requests, waits, answers.
 *
 * A guest is one connection. It is a STRANGER until its hello was good, GREETED until its first frame proved that
 * it has read our welcome, and then a MEMBER. A stranger costs its struct and nothing else, one that is greeted the
 * frame of a join. Bytes go in by want and took, out by output and sent; whoever moves them closes the connection
 * once `why` says so and nothing is left to send. A guest has one answer under way at most, and nothing is read from
 * it meanwhile.
 *
 * Threads: the server's only. */
#ifndef SHD_COMM_STORE_GUEST_H
#define SHD_COMM_STORE_GUEST_H

#include "runtime/comm/store_table.h"
#include "runtime/comm/store_wire.h"

enum {
    SHD_STORE_BEGINNING_MS = 5000, /* how long a beginning may take */
    SHD_STORE_STALL_MS = 30000     /* how long a frame or an answer that has begun may rest */
};

typedef enum shd_store_stage {
    SHD_STORE_STRANGER,
    SHD_STORE_GREETED,
    SHD_STORE_MEMBER,
    SHD_STORE_STAGES
} shd_store_stage;

typedef struct shd_store_guest {
    struct shd_store_guest *next, **link;
    shd_store_stage stage;
    const char *why; /* the connection is over, and why; NULL: it goes on */
    shd_store_line line;
    double due_ms; /* INFINITY, or when what it has begun must have got on */
    /* In: a hello or a frame's length, then the frame, which is NULL between frames. */
    uint8_t head[SHD_STORE_HELLO_BYTES];
    uint8_t *frame;
    size_t body_bytes, filled;
    bool complete; /* a frame is here and not yet served */
    /* Out. Small answers lie in `small`, others in memory of their own. */
    uint8_t small[SHD_STORE_WELCOME_BYTES];
    uint8_t *answer, *own_answer;
    size_t answer_bytes, answer_sent;
    /* A get that waits. */
    bool waits;
    double wait_until_ms;
    size_t key_bytes;
    char key[SHD_STORE_KEY_BYTES];
} shd_store_guest;

/* What the guests share. */
typedef struct shd_store_house {
    shd_store_keys keys;
    shd_store_table table;
    shd_store_guest *first; /* the youngest */
    int32_t counts[SHD_STORE_STAGES], max_members;
    int64_t joined;
    bool woken; /* a wait was ended by another guest since this was last cleared */
} shd_store_house;

/* `config`: job, secret and limits. Fails: INTERNAL. */
sherd_status shd_store_house_init(shd_store_house *house, const shd_store_server_config *config);
/* All guests have left. */
void shd_store_house_fini(shd_store_house *house);

/* `guest` is the caller's memory until it has left. */
void shd_store_guest_enter(shd_store_house *house, shd_store_guest *guest, double now_ms);
void shd_store_guest_leave(shd_store_house *house, shd_store_guest *guest);

/* Where the next bytes go, and at most how many; 0 while nothing is to be read. */
size_t shd_store_guest_want(const shd_store_guest *guest, uint8_t **where);
/* `count` of them are there. May finish waits of other guests: all have to be looked at afterwards. */
void shd_store_guest_took(shd_store_house *house, shd_store_guest *guest, size_t count, double now_ms);

/* What is to be sent; 0 for nothing. */
size_t shd_store_guest_output(const shd_store_guest *guest, const uint8_t **bytes);
void shd_store_guest_sent(shd_store_house *house, shd_store_guest *guest, size_t count, double now_ms);

/* When it is to be looked at by the clock next; INFINITY for never. */
double shd_store_guest_due_ms(const shd_store_guest *guest);
/* Ends the wait, or the connection, whose time is over at `now_ms`. */
void shd_store_guest_expire(shd_store_house *house, shd_store_guest *guest, double now_ms);

#endif
