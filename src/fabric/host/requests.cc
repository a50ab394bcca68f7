#include "fabric/host/requests.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "fabric/cluster_map.h"
#include "fabric/host/log.h"
#include "fabric/map_message.h"
#include "fabric/remote/protocol.h"

namespace loch::fabric::host {

using net::Message;

namespace {

// 0 if there is no such region yet.
std::uint64_t length_of(const OpenedStore& store, RegionId region) {
  return store.way->length_bytes(region).value_or(0);
}

// Whether the store, of one host or of this cluster, has the region here.
bool is_here(const Host::Options::Cluster* of, RegionId region) {
  if (of == nullptr) return region < data_regions_end;
  return of->map.node_of(region) == of->node;
}

}  // namespace

Message membership(const Host::Options::Cluster& of) {
  return {{"cluster", cluster::to_message(of.map)}, {"node", of.node}};
}

Message Requests::answer(Id link, OpenedStore& store, const Message& asked) {
  auto done = carry_out(link, store, asked);
  return done ? std::move(*done) : net::error_message(done.error());
}

Result<Message> Requests::carry_out(Id link, OpenedStore& store, const Message& asked) {
  const std::string what = net::text_of(asked, "do");
  const std::uint64_t client_asked = net::number_of(asked, "client").value_or(0);
  if (client_asked >> client_number_bits != 0)
    return fail(Errc::invalid_argument, "host", fmt::format("there is no client number {}", client_asked));
  const auto client = static_cast<std::uint32_t>(client_asked);
  if (store.reads_only && what == "extend")
    return fail(Errc::permission, "host", "this client may only read");
  if (what == "length" || what == "extend") return answer_about_region(store, what, asked);
  if (what == "membership") {
    const auto* of = sessions_.cluster_of(store);
    return of == nullptr ? Message::object() : membership(*of);
  }
  if (what == "free") return Message{{"bytes", store.fabric->free_bytes()}};
  if (what == "present") return Message{{"present", store.way->present(client)}};
  const Id session = net::number_of(asked, "port").value_or(0);
  if (!sessions_.has(link, session)) {
    return fail(what == "leave" ? Errc::not_found : Errc::unavailable, "host",
                "the session was broken off, because it was silent or gone");
  }
  if (what == "leave") {
    sessions_.end(session, Sessions::End::leaves);
    return Message::object();
  }
  if (what == "queue_pair") return offer_queue_pair(session, store);
  if (what == "connection") return describe_connection(session);
  if (what == "key") {
    const std::uint64_t region = net::number_of(asked, "region").value_or(region_count_max);
    if (region >= region_count_max) return fail(Errc::not_found, "host", "there is no such region");
    return lend(session, static_cast<RegionId>(region), asked);
  }
  if (what == "claim") {
    auto claimed = sessions_.claim(session, client, net::number_of(asked, "reached").value_or(all_nodes));
    if (!claimed) return std::unexpected(std::move(claimed.error()));
    return Message{{"claimed", *claimed}};
  }
  if (what == "release") {
    sessions_.release(session, client);
    return Message::object();
  }
  return fail(Errc::invalid_argument, "host", fmt::format("nobody here can '{}'", what));
}

bool Requests::is_here(OpenedStore& store, std::uint64_t region) const {
  return host::is_here(sessions_.cluster_of(store), static_cast<RegionId>(region));
}

void Requests::extend_soon(OpenedStore& store, std::uint64_t region, std::uint64_t bytes) {
  if (store.reads_only || region >= region_count_max || bytes > region_bytes_max || !is_here(store, region))
    return;
  const auto id = static_cast<RegionId>(region);
  if (length_of(store, id) < bytes && may_extend(store, id, bytes))
    extender_.extend_soon(store.fabric, id, bytes);
}

Result<void> Requests::may_extend(OpenedStore& store, RegionId region, std::uint64_t bytes) {
  if (bytes > region_bytes_max)
    return fail(Errc::invalid_argument, "host", "a region can not be as long as that");
  const std::uint64_t length = length_of(store, region);
  if (bytes <= length) return {};
  if (bytes - length > remote::extension_bytes_max) {
    return fail(Errc::invalid_argument, "host",
                fmt::format("{} bytes more at once for region {}, and {} are the most; ask for them in steps",
                            bytes - length, region, remote::extension_bytes_max));
  }
  const std::uint64_t limit = options_.bytes_max ? options_.bytes_max(*store.fabric) : 0;
  if (limit == 0) return {};
  // All but what says how the store is: items, and index. Regions count as long as they will be, of those
  // that the extender has not seen to yet.
  const auto* of = sessions_.cluster_of(store);
  auto wanted = extender_.wanted_of(*store.fabric);
  wanted[region] = std::max(wanted[region], bytes);
  const auto counts = [of, region](RegionId each) {
    const bool is_control = each == 0 || (each >= data_regions_end && each < index_region_of(0));
    return each == region || (!is_control && host::is_here(of, each));
  };
  std::uint64_t used = 0;
  for (unsigned each = 0; each < region_count_max; ++each) {
    const auto id = static_cast<RegionId>(each);
    if (counts(id)) used += std::max(length_of(store, id), wanted[id]);
  }
  if (used <= limit) return {};
  return fail(Errc::no_space, "host",
              fmt::format("{} would have {} bytes of the {} that it was created for; remove items, or create "
                          "it again with a larger max_bytes",
                          store.name, used, limit));
}

Result<Message> Requests::answer_about_region(OpenedStore& store, const std::string& what,
                                              const Message& asked) {
  const std::uint64_t region = net::number_of(asked, "region").value_or(region_count_max);
  if (region >= region_count_max)
    return fail(Errc::invalid_argument, "host", fmt::format("there is no region {}", region));
  const auto id = static_cast<RegionId>(region);
  if (!is_here(store, region))
    return fail(Errc::not_found, "host", fmt::format("region {} is not on this host", region));
  if (what == "extend") {
    const std::uint64_t bytes = net::number_of(asked, "bytes").value_or(region_bytes_max + 1);
    if (auto may = may_extend(store, id, bytes); !may) return std::unexpected(std::move(may.error()));
    if (auto extended = store.fabric->extend(id, bytes); !extended)
      return std::unexpected(std::move(extended.error()));
  }
  const auto bytes = store.way->length_bytes(id);
  if (!bytes) return std::unexpected(bytes.error());
  return Message{{"bytes", *bytes}};
}

Result<Message> Requests::offer_queue_pair(Id session, const OpenedStore& store) {
  if (lender_ == nullptr) {
    return fail(
        Errc::unavailable, "host",
        "this host does not lend over verbs; set verbs = true in its lochd.toml, or open tcp:// instead");
  }
  sessions_.note_queue_pair(session);
  const verbs::Lender::Offer offer = lender_->expect(session, store.fabric, store.reads_only);
  return Message{{"token", offer.token}, {"device_changes", offer.device_changes}};
}

Result<Message> Requests::describe_connection(Id session) const {
  const auto end = lender_ == nullptr ? fail(Errc::unavailable, "host", "the session has no queue pair")
                                      : lender_->end_of(session);
  if (!end) return std::unexpected(end.error());
  return verbs::to_message(*end);
}

Result<Message> Requests::lend(Id session, RegionId region, const Message& asked) {
  const auto key = lender_ == nullptr ? fail(Errc::unavailable, "host", "the session has no queue pair")
                                      : lender_->key(session, region,
                                                     net::number_of(asked, "at").value_or(region_bytes_max));
  if (!key) {
    if (key.error().code != Errc::not_found) warn_seldom(options_, unlent_, key.error().message());
    return std::unexpected(key.error());
  }
  return Message{
      {"from", key->from_bytes}, {"bytes", key->length_bytes}, {"address", key->address}, {"key", key->key}};
}

}  // namespace loch::fabric::host
