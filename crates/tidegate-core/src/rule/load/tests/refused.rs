//! Every kind of fault, alone: its place and its message.

use super::{check, faults_of};

const PAY: &str = "resources: [ { id: pay, attributes: { tenant: { from: header.t, missing: reject }, user: { from: header.u } } } ]\n";
const GET: &str = "resources: [ { id: get, match: { methods: [GET, HEAD], path: /a } }, \
    { id: post, match: { methods: [GET, POST], path: /b } }, \
    { id: any, match: { path: /c } }, \
    { id: dep } ]\n";

fn raw(text: &str) -> String {
    text.to_owned()
}

fn with_pay(text: &str) -> String {
    format!("{PAY}{text}")
}

fn with_get(text: &str) -> String {
    format!("{GET}{text}")
}

fn resource(fields: &str) -> String {
    format!("resources: [ {{ id: a, {fields} }} ]")
}

fn limit(fields: &str) -> String {
    format!("{PAY}limits: [ {{ id: l, resources: [pay], {fields} }} ]")
}

fn bucket(fields: &str) -> String {
    limit(&format!("token_bucket: {{ capacity: 20, refill: 10/s }}, {fields}"))
}

fn once(fields: &str) -> String {
    format!("{PAY}idempotency: [ {{ id: i, resources: [pay], {fields} }} ]")
}

fn keyed(fields: &str) -> String {
    once(&format!("scope: [tenant], key: {{ from: header.k }}, {fields}"))
}

fn breaker(fields: &str) -> String {
    format!("{GET}breakers: [ {{ id: b, resources: [dep], {fields} }} ]")
}

fn tripping(fields: &str) -> String {
    breaker(&format!("trip: [ {{ error_ratio: {{ at_least: 50% }} }} ], {fields}"))
}

fn when(condition: &str) -> String {
    format!("segments: [ {{ id: s, when: {condition} }} ]")
}

fn flag(fields: &str) -> String {
    format!("flags: [ {{ key: f, {fields} }} ]")
}

fn flag_rule(fields: &str) -> String {
    format!("flags: [ {{ key: f, default: \"off\", rules: [ {{ id: r, {fields} }} ] }} ]")
}

#[test]
fn the_document_itself_is_checked() {
    check(&faults_of(&raw("resources: {}")), &["2:12 a list is expected, not a mapping"]);
    check(&faults_of(&raw("limits:")), &["2:1 `limits` has no value"]);
    check(
        &faults_of(&raw("limts: []\nX-home: 1\nx-home: [anything]")),
        &["2:1 unknown field `limts` in the document", "3:1 unknown field `X-home` in the document"],
    );
    check(&faults_of(&raw("rules: [1]\n")), &["2:1 unknown field `rules` in the document"]);
    check(
        &faults_of(&raw("resources: [5, []]")),
        &[
            "2:13 this resource must be a mapping, not the number `5`",
            "2:16 this resource must be a mapping, not a list",
        ],
    );
}

#[test]
fn resources_are_checked() {
    check(&faults_of(&raw("resources: [ {} ]")), &["2:14 `id` is missing in this resource"]);
    check(&faults_of(&resource("match: /a")), &["2:30 match must be a mapping, not the text `/a`"]);
    check(&faults_of(&resource("match: {}")), &["2:30 `path` is missing in match"]);
    check(&faults_of(&resource("timeout: 0s")), &["2:32 `0s` is outside 1ms to 1d"]);
    check(&faults_of(&resource("timeout: 25h")), &["2:32 `25h` is outside 1ms to 1d"]);
    check(
        &faults_of(&resource("timeout: 3")),
        &["2:32 `3` has no unit, and a duration is never a bare number"],
    );
    check(
        &faults_of(&resource("match: { path: orders }")),
        &["2:38 the path `orders` does not begin with a slash"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/a//b" }"#)),
        &["2:38 `` in the path: paths are matched without empty segments"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/a/../b" }"#)),
        &["2:38 `..` in the path: paths are matched without dot segments"],
    );
    check(&faults_of(&resource(r#"match: { path: "/{a}/{a}" }"#)), &["2:38 the path names `a` twice"]);
    check(
        &faults_of(&resource(r#"match: { path: "/{*a}/b" }"#)),
        &["2:38 `{*a}` in the path: `{*…}` takes all that is left"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/x{a}" }"#)),
        &["2:38 `x{a}` in the path: a name in braces is a whole segment"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/a?b=1" }"#)),
        &["2:38 `a?b=1` in the path: a pattern is a path only"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/a%2Fb" }"#)),
        &["2:38 `a%2Fb` in the path: an encoded slash cannot be matched"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/a%ZZ" }"#)),
        &["2:38 `a%ZZ` in the path: a percent sign stands before two hexadecimal digits of UTF-8"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/a%FF" }"#)),
        &["2:38 `a%FF` in the path: a percent sign stands before two hexadecimal digits of UTF-8"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/{}" }"#)),
        &["2:38 `{}` in the path: a name in braces is letters, digits, `_` and `-`"],
    );
    check(&faults_of(&resource("match: { path: /a, hosts: [] }")), &["2:49 this list is empty"]);
    check(
        &faults_of(&resource(
            r#"match: { path: /a, hosts: ["a_b.example:80", "*.*.c", "", "[::1]", "[::x]"] }"#,
        )),
        &[
            "2:50 `a_b.example:80` is not a host",
            "2:68 `*.*.c` is not a host",
            "2:77 `` is not a host",
            "2:90 `[::x]` is not a host",
        ],
    );
    check(
        &faults_of(&resource("match: { path: /a, hosts: [A.b, a.B] }")),
        &["2:55 `a.b` is listed twice; the first is at 2:50"],
    );
    check(
        &faults_of(&resource(r#"match: { path: /a, methods: [get, "G T", GET, GET] }"#)),
        &[
            "2:52 `get` is not a method in capitals",
            "2:57 `G T` is not a method in capitals",
            "2:69 `GET` is listed twice; the first is at 2:64",
        ],
    );
    check(
        &faults_of(&resource("match: { path: /a, method: GET }")),
        &["2:42 unknown field `method` in match"],
    );
    check(
        &faults_of(&resource("attributes: [t]")),
        &["2:35 attributes are a mapping from names, not a list"],
    );
    check(
        &faults_of(&resource("attributes: { t: header.t }")),
        &["2:40 an attribute must be a mapping, not the text `header.t`"],
    );
    check(&faults_of(&resource("attributes: { t: {} }")), &["2:40 `from` is missing in an attribute"]);
    check(
        &faults_of(&resource("attributes: { t: { from: header.t, missing: rejct } }")),
        &["2:67 `rejct` is not known here"],
    );
    check(
        &faults_of(&resource(
            r#"attributes: { method: { from: header.m }, "a b": { from: header.m }, body.x: { from: header.m } }"#,
        )),
        &[
            "2:37 `method` cannot be an attribute's name",
            "2:65 `a b` cannot be an attribute's name",
            "2:92 `body.x` cannot be an attribute's name",
        ],
    );
    check(
        &faults_of(&resource(
            r#"attributes: { a: { from: headr.x }, b: { from: header. }, c: { from: query. }, d: { from: client.port }, e: { from: body./a~2 }, f: { from: body.x }, g: { from: "header.a b" }, h: { from: x } }"#,
        )),
        &[
            "2:48 `headr.x` is no source of an attribute",
            "2:70 `header.`: the name must be an HTTP token",
            "2:92 `query.`: a name is missing behind the dot",
            "2:113 `client.port`: the client has only an address",
            "2:139 `body./a~2`: a JSON pointer with a leading slash is expected",
            "2:163 `body.x`: a JSON pointer with a leading slash is expected",
            "2:184 `header.a b`: the name must be an HTTP token",
            "2:211 `x` is no source of an attribute",
        ],
    );
    check(
        &faults_of(&resource("attributes: { o: { from: path.order } }")),
        &["2:48 `path.order` needs a path, and resource `a` has no `match`"],
    );
    check(
        &faults_of(&resource(r#"match: { path: "/{order}" }, attributes: { o: { from: path.ordr } }"#)),
        &["2:77 the path of resource `a` has no segment `ordr`"],
    );
    check(
        &faults_of(&resource("subject: user")),
        &["2:32 the subject `user` is not an attribute of this resource"],
    );
    check(
        &faults_of(&resource("attributes: { user: { from: header.u } }, subject: usr")),
        &["2:74 the subject `usr` is not an attribute of this resource"],
    );
    check(&faults_of(&resource("flags: [x]")), &["2:31 there is no flag `x`"]);
    check(
        &faults_of(&raw(
            "resources: [ { id: a, flags: [new-chekout, new-checkout, new-checkout] } ]\nflags: [ { key: new-checkout, default: \"off\" } ]",
        )),
        &["2:31 there is no flag `new-chekout`", "2:58 `new-checkout` is listed twice; the first is at 2:44"],
    );
    check(
        &faults_of(&raw(r#"resources: [ { id: "*" }, { id: "a b" }, { id: 5 }, { id: é } ]"#)),
        &[
            "2:20 `*` means every resource and names none",
            "2:33 `a b` is not a name",
            "2:48 text is expected, not the number `5`",
            "2:59 `é` is not a name",
        ],
    );
    check(
        &faults_of(&raw("resources: [ { id: a }, { id: b }, { id: a } ]")),
        &["2:42 two resources are called `a`; the first is at 2:20"],
    );
}

#[test]
fn limits_are_checked() {
    check(
        &faults_of(&with_pay("limits: [ {} ]")),
        &[
            "3:11 `id` is missing in this limit",
            "3:11 `resources` is missing in this limit",
            "3:11 an algorithm is missing in this limit",
        ],
    );
    check(
        &faults_of(&limit("token_bucket: {}")),
        &["3:52 `capacity` is missing in token_bucket", "3:52 `refill` is missing in token_bucket"],
    );
    check(&faults_of(&limit("mode: enforce")), &["3:11 an algorithm is missing in this limit"]);
    check(
        &faults_of(&limit("token_bucket: { capacity: 1, refill: 1/s }, concurrency: { max: 1 }")),
        &["3:95 this limit has two algorithms, token_bucket and concurrency"],
    );
    check(
        &faults_of(&limit("token_bucket: { capacity: 0, refill: 0/s }")),
        &[
            "3:64 `0` is outside 1 to 999999999999999",
            "3:75 the count of `0/s` is outside 1 to 999999999999999",
        ],
    );
    check(
        &faults_of(&limit("token_bucket: { capacity: -1, refill: -1/s }")),
        &["3:64 `-1` is outside 1 to 999999999999999", "3:76 `-1/s` is not a rate"],
    );
    check(
        &faults_of(&limit(
            "token_bucket: { capacity: 18446744073709551616, refill: 18446744073709551616/s }",
        )),
        &[
            "3:64 `18446744073709551616` is outside 1 to 999999999999999",
            "3:94 the count of `18446744073709551616/s` is outside 1 to 999999999999999",
        ],
    );
    check(
        &faults_of(&limit("token_bucket: { capacity: 1000000, refill: 1/d }")),
        &["3:64 an empty bucket would need 2740 years at this rate, and 100 are the most"],
    );
    check(
        &faults_of(&limit("leaky_bucket: { rate: 1/366d, queue: 1000 }")),
        &["3:75 a full queue would need 1003 years at this rate, and 100 are the most"],
    );
    check(
        &faults_of(&limit("fixed_window: { limit: 0, window: 0s }")),
        &["3:61 `0` is outside 1 to 999999999999999", "3:72 `0s` is outside 1ms to 366d"],
    );
    check(
        &faults_of(&limit("sliding_window: { limit: 1000000000000000, window: 367d }")),
        &["3:63 `1000000000000000` is outside 1 to 999999999999999", "3:89 `367d` is outside 1ms to 366d"],
    );
    check(
        &faults_of(&limit("sliding_log: { limit: 1000001, window: 1us }")),
        &["3:60 `1000001` is outside 1 to 1000000", "3:77 `1us` is outside 1ms to 366d"],
    );
    check(
        &faults_of(&limit("leaky_bucket: { rate: 10/s, queue: 1000001 }")),
        &["3:73 `1000001` is outside 0 to 1000000"],
    );
    check(&faults_of(&limit("concurrency: { max: 0 }")), &["3:58 `0` is outside 1 to 999999999999999"]);
    check(&faults_of(&limit("concurrency: 5")), &["3:51 concurrency must be a mapping, not the number `5`"]);
    check(&faults_of(&bucket(r#"mode: "on""#)), &["3:90 `on` is not known here"]);
    check(
        &faults_of(&bucket("mode: off, desciption: x")),
        &["3:95 unknown field `desciption` in this limit"],
    );
    check(&faults_of(&bucket("key: user")), &["3:89 a list is expected, not the text `user`"]);
    check(
        &faults_of(&bucket("key: [usr, user, user]")),
        &[
            "3:90 the attribute `usr` is not declared by `pay`",
            "3:101 `user` is listed twice; the first is at 3:95",
        ],
    );
    check(
        &faults_of(&bucket(
            "key: [k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10, k11, k12, k13, k14, k15, k16, k17, k18, k19, k20, k21, k22, k23, k24, k25, k26, k27, k28, k29, k30, k31, k32]",
        )),
        &["3:240 this list has more than 32 elements"],
    );
    check(
        &faults_of(&with_pay(
            r#"limits: [ { id: l, resources: [], token_bucket: { capacity: 20, refill: 10/s } }, { id: m, resources: ["*"], token_bucket: { capacity: 20, refill: 10/s } }, { id: n, resources: pay, token_bucket: { capacity: 20, refill: 10/s } }, { id: o, resources: [pya, pay, pay], token_bucket: { capacity: 20, refill: 10/s } } ]"#,
        )),
        &[
            "3:31 this list is empty",
            "3:104 `*` stands alone, not in a list",
            r#"3:178 a list of resources or "*" is expected, not the text `pay`"#,
            "3:252 there is no resource `pya`",
            "3:262 `pay` is listed twice; the first is at 3:257",
        ],
    );
    check(
        &faults_of(&raw(
            "resources: [ { id: a, attributes: { x: { from: header.x } } }, { id: b } ]\nlimits: [ { id: l, resources: \"*\", key: [x], token_bucket: { capacity: 20, refill: 10/s } } ]",
        )),
        &["3:42 the attribute `x` is not declared by `b`"],
    );
    check(
        &faults_of(&raw(
            r#"limits: [ { id: l, resources: "*", key: [x], token_bucket: { capacity: 20, refill: 10/s } } ]"#,
        )),
        &["2:42 the attribute `x` is declared nowhere: there are no resources"],
    );
    check(&faults_of(&bucket("cost: 0")), &["3:90 `0` is outside 1 to 999999999999999"]);
    check(
        &faults_of(&bucket("cost: { from: user, default: 0, max: 0 }")),
        &["3:113 `0` is outside 1 to 999999999999999", "3:121 `0` is outside 1 to 999999999999999"],
    );
    check(
        &faults_of(&bucket("cost: { from: usr, default: 5, max: 2 }")),
        &[
            "3:98 the attribute `usr` is not declared by `pay`",
            "3:112 the default cost 5 is more than the largest accepted cost 2",
        ],
    );
    check(
        &faults_of(&bucket("cost: {}")),
        &["3:90 `from` is missing in cost", "3:90 `max` is missing in cost"],
    );
    check(&faults_of(&bucket("cost: user")), &["3:90 a whole number is expected, not the text `user`"]);
    check(
        &faults_of(&bucket(
            "key: [user], overrides: [ { when: { tenant: { equals: a } }, token_bucket: { capacity: 5, refill: 1/s } } ]",
        )),
        &["3:120 the override tests `tenant`, which is not in the limit's key"],
    );
    check(
        &faults_of(&bucket(
            "key: [user], overrides: [ { when: { user: { equals: a } }, fixed_window: { limit: 5, window: 1s } } ]",
        )),
        &["3:157 this override is a fixed_window, and its limit is a token_bucket"],
    );
    check(
        &faults_of(&raw(
            "resources: [ { id: pay, attributes: { tenant: { from: header.t, missing: reject }, user: { from: header.u } } } ]\nlimits: [ { id: l, resources: [pay], token_bucket: { capacity: 20, refill: 10/s }, key: [user], overrides: [ { when: { segment: s } } , {} ] } ]\nsegments: [ { id: s, when: { any: [ { user: { equals: a } }, { segment: t } ] } }, { id: t, when: { plan: { equals: b } } } ]",
        )),
        &[
            "3:110 an algorithm is missing in this override",
            "3:129 the override tests `plan`, which is not in the limit's key (through the segment `s`)",
            "3:137 `when` is missing in this override",
            "3:137 an algorithm is missing in this override",
        ],
    );
    check(
        &faults_of(&bucket("sharing: exact, on_store_failure: fail_open")),
        &["3:93 `sharing: exact` needs a shared store, and none is configured"],
    );
    check(
        &faults_of(&bucket("sharing: leased")),
        &[
            "3:93 `sharing: leased` needs a shared store, and none is configured",
            "3:93 `on_store_failure` is missing, and `sharing: leased` needs it",
        ],
    );
    check(
        &faults_of(&limit("concurrency: { max: 5 }, sharing: leased, on_store_failure: fail_closed")),
        &[
            "3:72 `sharing: leased` needs a shared store, and none is configured",
            "3:72 a concurrency cannot be leased: its permits are places, not a supply",
        ],
    );
    check(
        &faults_of(&bucket("sharing: shared, on_store_failure: local, after_store_loss: empty")),
        &[
            "3:93 `shared` is not known here",
            "3:119 `local` is not known here",
            "3:144 `empty` is not known here",
        ],
    );
    check(
        &faults_of(&with_pay(
            "limits: [ { id: l, resources: [pay], token_bucket: { capacity: 20, refill: 10/s } }, { id: l, resources: [pay], token_bucket: { capacity: 20, refill: 10/s } } ]",
        )),
        &["3:92 two limits are called `l`; the first is at 3:17"],
    );
}

#[test]
fn idempotency_rules_are_checked() {
    check(
        &faults_of(&with_pay("idempotency: [ {} ]")),
        &[
            "3:16 `id` is missing in this idempotency rule",
            "3:16 `resources` is missing in this idempotency rule",
            "3:16 `scope` is missing in this idempotency rule",
            "3:16 `key` is missing in this idempotency rule",
        ],
    );
    check(&faults_of(&once("scope: [tenant]")), &["3:16 `key` is missing in this idempotency rule"]);
    check(
        &faults_of(&once("key: { from: header.k }")),
        &["3:16 `scope` is missing in this idempotency rule"],
    );
    check(
        &faults_of(&once("scope: [user, tennant, tenant, tenant], key: { from: header.k }")),
        &[
            "3:51 the attribute `user` may be missing (`pay`), and a record cannot belong to nobody in particular",
            "3:57 the attribute `tennant` is not declared by `pay`",
            "3:74 `tenant` is listed twice; the first is at 3:66",
        ],
    );
    check(&faults_of(&once("scope: [tenant], key: {}")), &["3:65 a key needs `from` or `derive`"]);
    check(
        &faults_of(&once("scope: [tenant], key: { from: header.k, derive: [tenant], window: 1s }")),
        &["3:65 a key is either sent or derived"],
    );
    check(
        &faults_of(&once("scope: [tenant], key: { derive: [tenant] }")),
        &["3:65 `window` is missing in a derived key"],
    );
    check(
        &faults_of(&once("scope: [tenant], key: { derive: [], window: 0s }")),
        &["3:75 this list is empty", "3:87 `0s` is outside 1ms to 366d"],
    );
    check(
        &faults_of(&once(
            "scope: [tenant], key: { derive: [user, body./a, body.a, bdy], window: 1s, required: true }",
        )),
        &[
            "3:76 the attribute `user` may be missing (`pay`), and a record cannot belong to nobody in particular",
            "3:91 `body.a`: a JSON pointer with a leading slash is expected",
            "3:99 the attribute `bdy` is not declared by `pay`",
            "3:127 `required` has no meaning in a key with `derive`",
        ],
    );
    check(
        &faults_of(&once("scope: [tenant], key: { from: header.k, window: 1s, required: maybe }")),
        &[
            "3:91 `window` has no meaning in a key with `from`",
            "3:105 a boolean is expected, not the text `maybe`",
        ],
    );
    check(
        &faults_of(&once("scope: [tenant], key: { from: path.k }")),
        &["3:73 `path.k` needs a path, and resource `pay` has no `match`"],
    );
    check(
        &faults_of(&once("scope: [tenant], key: { derive: [tenant], window: 25h }")),
        &["3:93 a derived key means one intent for 1d1h, and its record is kept for 1d only"],
    );
    check(&faults_of(&keyed("fingerprint: []")), &["3:98 this list is empty"]);
    check(
        &faults_of(&keyed("fingerprint: [method, method, usr]")),
        &[
            "3:107 `method` is listed twice; the first is at 3:99",
            "3:115 the attribute `usr` is not declared by `pay`",
        ],
    );
    check(
        &faults_of(&keyed("commit: with_effects")),
        &["3:93 `commit: with_effects` is not available through the gateway in this release"],
    );
    check(
        &faults_of(&keyed("commit: one_transaction")),
        &["3:93 `commit: one_transaction` works in the library only"],
    );
    check(&faults_of(&keyed("commit: after")), &["3:93 `after` is not known here"]);
    check(&faults_of(&keyed("on_unknown: reject")), &["3:97 `reject` is not known here"]);
    check(
        &faults_of(&keyed("retention: 5m30s")),
        &[
            "3:96 retention (5m30s) is not longer than max_execution (5m) and lease (30s) together, so a record could end before its call",
        ],
    );
    check(
        &faults_of(&keyed("lease: 24h")),
        &[
            "3:92 retention (1d) is not longer than max_execution (5m) and lease (1d) together, so a record could end before its call",
        ],
    );
    check(
        &faults_of(&keyed("lease: 30, max_execution: 1.5s, retention: 400d")),
        &[
            "3:92 `30` has no unit, and a duration is never a bare number",
            "3:111 `1.5s` is not a duration",
            "3:128 `400d` is outside 1ms to 366d",
        ],
    );
    check(
        &faults_of(&keyed("in_progress: wait")),
        &["3:98 `reject` or `{ wait: 2s }` is expected, not the text `wait`"],
    );
    check(&faults_of(&keyed("in_progress: { wait: 0s }")), &["3:106 `0s` is outside 1ms to 366d"]);
    check(&faults_of(&keyed("in_progress: {}")), &["3:98 `wait` is missing in in_progress"]);
    check(&faults_of(&keyed("max_response: 1MB")), &["3:99 `1MB` is not a number of bytes"]);
    check(&faults_of(&keyed("max_response: 65MiB")), &["3:99 `65MiB` is outside 0 to 67108864 bytes"]);
    check(
        &faults_of(&keyed(r#"replay_headers: [Set-Cookie, date, RateLimit-Policy, "a b", ETag, etag]"#)),
        &[
            "3:102 `Set-Cookie` is never replayed: it belongs to one message, not to the result",
            "3:114 `date` is never replayed: it belongs to one message, not to the result",
            "3:120 `RateLimit-Policy` is never replayed: it belongs to one message, not to the result",
            "3:138 `a b` is not a header's name",
            "3:151 `etag` is listed twice; the first is at 3:145",
        ],
    );
    check(&faults_of(&keyed(r#"operation: "a b""#)), &["3:96 `a b` is not a name"]);
    check(&faults_of(&keyed("opration: x")), &["3:85 unknown field `opration` in this idempotency rule"]);
    check(
        &faults_of(&with_pay(
            r#"idempotency: [ { id: i, resources: [pay], scope: [tenant], key: { from: header.k } }, { id: j, resources: [pay], scope: [tenant], key: { from: header.k } }, { id: k, resources: "*", scope: [tenant], key: { from: header.k } } ]"#,
        )),
        &[
            "3:108 resource `pay` has two idempotency rules; the other is `i` at 3:16",
            "3:178 resource `pay` has two idempotency rules; the other is `i` at 3:16",
        ],
    );
    check(
        &faults_of(&raw(
            "resources: [ { id: a, attributes: { t: { from: header.t, missing: reject } } }, { id: b, attributes: { t: { from: header.t, missing: reject } } } ]\nidempotency: [ { id: i, operation: charge, resources: [a], scope: [t], key: { from: header.k } }, { id: charge, resources: [b], scope: [], key: { from: header.k, required: false }, commit: after_response, on_unknown: retry, fingerprint: [body], retention: 25h } ]",
        )),
        &[
            "3:105 the operation `charge` also belongs to the rule `i`, which differs in on_unknown, fingerprint, retention, scope, key",
        ],
    );
}

#[test]
fn breakers_are_checked() {
    check(
        &faults_of(&with_get("breakers: [ {} ]")),
        &[
            "3:13 `id` is missing in this breaker",
            "3:13 `resources` is missing in this breaker",
            "3:13 `trip` is missing in this breaker",
        ],
    );
    check(&faults_of(&breaker("trip: []")), &["3:46 this list is empty"]);
    check(
        &faults_of(&breaker(
            "trip: [ {}, { error_ratio: { at_least: 50% }, error_count: { at_least: 5 } } ]",
        )),
        &[
            "3:48 a trip has exactly one of slow_ratio, error_ratio and error_count, not 0",
            "3:52 a trip has exactly one of slow_ratio, error_ratio and error_count, not 2",
        ],
    );
    check(
        &faults_of(&breaker(
            "trip: [ { error_ratio: { at_least: 50 } }, { error_ratio: { at_least: 0% } }, { slow_ratio: { at_least: 0.5 } }, { error_count: { at_least: 50% } }, { error_count: { at_least: 0 } } ]",
        )),
        &[
            "3:75 `50` is not a ratio: it could mean a share or a percentage",
            "3:110 a ratio of zero would always trip",
            "3:132 `slower_than` is missing in slow_ratio",
            "3:180 error_count takes a number of failures, not the share `50%`",
            "3:216 `0` is outside 1 to 999999999999999",
        ],
    );
    check(
        &faults_of(&breaker("trip: [ { slow_ratio: { slower_than: 0ms, at_least: 150% } } ]")),
        &["3:77 `0ms` is outside 1us to 366d", "3:92 `150` is outside 0 to 100"],
    );
    check(&faults_of(&tripping("key: [host]")), &["3:92 `host` is not known here"]);
    check(
        &faults_of(&tripping("key: [upstream_host, upstream_host]")),
        &["3:107 `upstream_host` is listed twice; the first is at 3:92"],
    );
    check(&faults_of(&tripping("failure: []")), &["3:95 this list is empty"]);
    check(
        &faults_of(&tripping("failure: [4xx, 200, 503, 503, 5xx]")),
        &[
            "3:96 `4xx` is not known here",
            "3:101 `200` is outside 400 to 599",
            "3:111 `503` is listed twice; the first is at 3:106",
        ],
    );
    check(
        &faults_of(&tripping("min_requests: 0, window: 0s, open_for: 10")),
        &[
            "3:100 `0` is outside 1 to 999999999999999",
            "3:111 `0s` is outside 1ms to 366d",
            "3:125 `10` has no unit, and a duration is never a bare number",
        ],
    );
    check(&faults_of(&tripping("open_for: 2m")), &["3:96 open_for (2m) is longer than max_open (1m)"]);
    check(&faults_of(&tripping("max_open: 1s")), &["3:96 open_for (5s) is longer than max_open (1s)"]);
    check(
        &faults_of(&tripping("half_open: { probes: 0, probe_timeout: 0s }")),
        &["3:107 `0` is outside 1 to 1024", "3:125 `0s` is outside 1ms to 366d"],
    );
    check(&faults_of(&tripping("half_open: { probe: 1 }")), &["3:99 unknown field `probe` in half_open"]);
    check(
        &faults_of(&tripping(
            "fallback: [ {}, { cache: {} }, { cache: { ttl: 1m }, respond: { status: 503 } }, { respond: {} } ]",
        )),
        &[
            "3:98 a fallback has exactly one of cache and respond",
            "3:111 `ttl` is missing in cache",
            "3:117 a fallback has exactly one of cache and respond",
            "3:178 `status` is missing in respond",
        ],
    );
    check(
        &faults_of(&tripping(
            "fallback: [ { respond: { status: 600 } }, { respond: { status: 503, json: {}, text: x } }, { respond: { status: 204, text: x } }, { respond: { status: 503, json: { a: True, b: 0x1, c: 01, d: .inf } } } ]",
        )),
        &[
            "3:119 `600` is outside 200 to 599",
            "3:154 a fixed answer has one body, `json` or `text`",
            "3:198 an answer with this status has no body",
            "3:253 `True` is read differently by different YAML readers",
            "3:262 `0x1` is read differently by different YAML readers",
            "3:270 `01` is not a JSON number",
            "3:277 `.inf` is read differently by different YAML readers",
        ],
    );
    check(
        &faults_of(&with_get(
            r#"breakers: [ { id: b, resources: [get], trip: [ { error_count: { at_least: 5 } } ], fallback: [ { cache: { ttl: 1m } } ] }, { id: c, resources: [get, post], trip: [ { error_count: { at_least: 5 } } ], fallback: [ { cache: { ttl: 1m } } ] }, { id: d, resources: [any], trip: [ { error_count: { at_least: 5 } } ], fallback: [ { cache: { ttl: 1m } } ] }, { id: e, resources: "*", trip: [ { error_count: { at_least: 5 } } ], fallback: [ { cache: { ttl: 1m } } ] } ]"#,
        )),
        &[
            "3:213 the cache answers only GET and HEAD, and resource `post` takes other methods",
            "3:324 the cache answers only GET and HEAD, and resource `any` takes other methods",
            "3:433 the cache answers only GET and HEAD, and resource `any` takes other methods",
        ],
    );
    check(
        &faults_of(&with_pay(
            "idempotency: [ { id: i, resources: \"*\", scope: [tenant], key: { from: header.k } } ]\nbreakers: [ { id: b, resources: [pay], trip: [ { error_count: { at_least: 5 } } ], fallback: [ { respond: { status: 202 } }, { respond: { status: 503 } } ] } ]",
        )),
        &[
            "4:96 the fixed answer 202 claims success, and resource `pay` has an idempotency rule: callers would take it for the result",
        ],
    );
}

#[test]
fn conditions_are_checked() {
    check(&faults_of(&when("{}")), &["2:28 this condition is empty"]);
    check(&faults_of(&when("staff")), &["2:28 a condition is a mapping, not the text `staff`"]);
    check(&faults_of(&when("{ a: {} }")), &["2:33 a test is missing"]);
    check(
        &faults_of(&when("{ a: b }")),
        &["2:33 a test of the attribute `a` is a mapping, not the text `b`"],
    );
    check(&faults_of(&when("{ a: [b] }")), &["2:33 a test of the attribute `a` is a mapping, not a list"]);
    check(
        &faults_of(&when("{ equals: b }")),
        &["2:30 `equals` is a test, and an attribute is missing before it"],
    );
    check(
        &faults_of(&when("{ equals: { a: b } }")),
        &["2:30 `equals` is a test, and an attribute is missing before it"],
    );
    check(&faults_of(&when("{ a: { equal: b } }")), &["2:35 unknown test `equal`"]);
    check(&faults_of(&when("{ a: { all: [] } }")), &["2:35 unknown test `all`"]);
    check(&faults_of(&when("{ all: {} }")), &["2:35 a list is expected, not a mapping"]);
    check(
        &faults_of(&when("{ any: [ 5, {} ] }")),
        &["2:37 a condition is a mapping, not the number `5`", "2:40 this condition is empty"],
    );
    check(&faults_of(&when("{ not: [] }")), &["2:35 a condition is a mapping, not a list"]);
    check(&faults_of(&when(r#"{ "": { equals: a } }"#)), &["2:30 an attribute's name is empty"]);
    check(&faults_of(&when("{ a: { equals: null } }")), &["2:43 null cannot be compared"]);
    check(
        &faults_of(&when("{ a: { equals: [1] } }")),
        &["2:43 a text, number or boolean is expected, not a list"],
    );
    check(
        &faults_of(&when("{ a: { in: 1, not_in: [1, {}, ~] } }")),
        &[
            "2:39 a list is expected, not the number `1`",
            "2:54 a text, number or boolean is expected, not a mapping",
            "2:58 null cannot be compared",
        ],
    );
    check(
        &faults_of(&when("{ a: { equals: True } }")),
        &["2:43 `True` is read differently by different YAML readers"],
    );
    check(
        &faults_of(&when(r#"{ a: { gt: "1", gte: x, lt: 0x10, lte: 1e5 } }"#)),
        &[
            "2:39 a number is expected, not the text `1`",
            "2:49 a number is expected, not the text `x`",
            "2:56 a number is expected, not the text `0x10`",
        ],
    );
    check(
        &faults_of(&when("{ a: { gt: 1e9999999999, gte: 1e5, lt: .5, lte: -0123 } }")),
        &["2:39 `1e9999999999` is not a usable decimal number"],
    );
    check(
        &faults_of(&when(r#"{ a: { matches: "(" } }"#)),
        &["2:44 `(` is not a regular expression: unclosed group"],
    );
    check(
        &faults_of(&when(r#"{ a: { matches: "(x{1000}){1000}" } }"#)),
        &["2:44 `(x{1000}){1000}` compiles to more than 1048576 bytes"],
    );
    check(
        &faults_of(&when(
            r#"{ all: [ { a: { semver: ">=one" } }, { a: { semver: ^1.2 } }, { a: { semver: ">=1.2,<2" } } ] }"#,
        )),
        &[
            "2:52 `one` is not a version",
            "2:80 `^` is no operator of a version range",
            "2:105 `1.2,<2` is not a version",
        ],
    );
    check(&faults_of(&when("{ a: { cidr: [] } }")), &["2:41 this list is empty"]);
    check(
        &faults_of(&when("{ a: { cidr: [10.0.0.1, 10.0.0.0/40] } }")),
        &["2:52 `10.0.0.0/40` is not a network"],
    );
    check(
        &faults_of(&when("{ a: { before: 2026-01-31, after: noon } }")),
        &["2:43 `2026-01-31` is not a time of RFC 3339", "2:62 `noon` is not a time of RFC 3339"],
    );
    check(&faults_of(&when("{ segment: t }")), &["2:39 there is no segment `t`"]);
    check(&faults_of(&when("{ segment: s }")), &["2:39 the segment `s` asks itself: s → s"]);
    check(&faults_of(&when("{ segment: [s] }")), &["2:39 text is expected, not a list"]);
    check(
        &faults_of(&raw(
            "segments: [ { id: a, when: { segment: b } }, { id: b, when: { not: { segment: c } } }, { id: c, when: { all: [ { segment: a }, { segment: b } ] } } ]",
        )),
        &["2:123 the segment `a` asks itself: a → b → c → a", "2:139 the segment `b` asks itself: b → c → b"],
    );
    check(
        &faults_of(&raw(
            "segments: [ { id: a, when: { x: { equals: 1 } } }, { id: a, when: { x: { equals: 1 } } } ]",
        )),
        &["2:58 two segments are called `a`; the first is at 2:19"],
    );
    check(
        &faults_of(&raw("segments: [ { id: a }, { when: { x: { equals: 1 } } } ]")),
        &["2:13 `when` is missing in this segment", "2:24 `id` is missing in this segment"],
    );
}

#[test]
fn flags_are_checked() {
    check(
        &faults_of(&raw("flags: [ {} ]")),
        &["2:10 `key` is missing in this flag", "2:10 `default` is missing in this flag"],
    );
    check(
        &faults_of(&raw(
            r#"flags: [ { key: "a:b", default: "on" }, { key: "", default: "on" }, { key: 5, default: on } ]"#,
        )),
        &[
            "2:17 `a:b`: a flag's key has no `:`",
            "2:48 ``: a flag's key is empty",
            "2:76 text is expected, not the number `5`",
        ],
    );
    check(&faults_of(&flag("default: yes")), &["2:29 this flag has no variant `yes`"]);
    check(&faults_of(&flag("default: true")), &["2:29 text is expected, not the boolean `true`"]);
    check(&faults_of(&flag("default: of")), &["2:29 this flag has no variant `of`"]);
    check(&faults_of(&flag("default: a, variants: {}")), &["2:42 a flag without variants serves nothing"]);
    check(
        &faults_of(&flag("default: a, variants: [a]")),
        &["2:42 variants are a mapping from names to values, not a list"],
    );
    check(
        &faults_of(&flag("default: a, variants: { a: 007, b: +1, c: True, d: 1., é: 1 }")),
        &[
            "2:47 `007` is not a JSON number",
            "2:55 `+1` is not a JSON number",
            "2:62 `True` is read differently by different YAML readers",
            "2:71 `1.` is not a JSON number",
            "2:75 `é` cannot be a variant's name",
        ],
    );
    check(
        &faults_of(&flag("default: a, variants: { a: 1, a: 2 }")),
        &["2:50 the key `a` is written twice in one mapping; the first is at 2:44"],
    );
    check(
        &faults_of(&flag(r#"default: "on", sticky: session"#)),
        &["2:43 `sticky: session` is not available in this release"],
    );
    check(&faults_of(&flag(r#"default: "on", sticky: always"#)), &["2:43 `always` is not known here"]);
    check(&faults_of(&flag(r#"default: "on", rules: {}"#)), &["2:42 a list is expected, not a mapping"]);
    check(
        &faults_of(&flag(r#"default: "on", rules: [ {} ]"#)),
        &["2:44 `id` is missing in this flag rule", "2:44 `serve` is missing in this flag rule"],
    );
    check(&faults_of(&flag_rule("serve: blue")), &["2:61 this flag has no variant `blue`"]);
    check(&faults_of(&flag_rule("serve: true")), &["2:61 text is expected, not the boolean `true`"]);
    check(&faults_of(&flag_rule("serve: {}")), &["2:61 `split` is missing in serve"]);
    check(
        &faults_of(&flag_rule("serve: { split: { on: 50, off: 49.99 } }")),
        &["2:70 the shares add up to 99.99 %, not 100 %"],
    );
    check(
        &faults_of(&flag_rule("serve: { split: { on: 50, blue: 50 } }")),
        &["2:80 this flag has no variant `blue`"],
    );
    check(&faults_of(&flag_rule("serve: { split: {} }")), &["2:70 the shares add up to 0.00 %, not 100 %"]);
    check(
        &faults_of(&flag_rule("serve: { split: [on] }")),
        &["2:70 a split is a mapping from variants to percentages, not a list"],
    );
    check(
        &faults_of(&flag_rule(r#"serve: "on", percentage: 100.01"#)),
        &["2:79 `100.01` is outside 0 to 100"],
    );
    check(&faults_of(&flag_rule(r#"serve: "on", percentage: 0.005"#)), &["2:79 `0.005` is finer than 0.01"]);
    check(&faults_of(&flag_rule(r#"serve: "on", percentage: -1"#)), &["2:79 `-1` is outside 0 to 100"]);
    check(
        &faults_of(&flag_rule(r#"serve: "on", priority: 1.5"#)),
        &["2:77 a whole number from -1000000000 to 1000000000 is expected, not the number `1.5`"],
    );
    check(
        &faults_of(&flag_rule(r#"serve: "on", priority: 10000000000"#)),
        &["2:77 a whole number from -1000000000 to 1000000000 is expected, not the number `10000000000`"],
    );
    check(&faults_of(&flag_rule(r#"serve: "on", when: { segment: s }"#)), &["2:84 there is no segment `s`"]);
    check(
        &faults_of(&flag_rule(r#"serve: "on", wehn: {}"#)),
        &["2:67 unknown field `wehn` in this flag rule"],
    );
    check(
        &faults_of(&raw(
            r#"flags: [ { key: f, default: "off", rules: [ { id: r, serve: "on" }, { id: r, serve: "on" } ] }, { key: f, default: "off" } ]"#,
        )),
        &[
            "2:75 two rules of this flag are called `r`; the first is at 2:51",
            "2:104 two flags are called `f`; the first is at 2:17",
        ],
    );
}
