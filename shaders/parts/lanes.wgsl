// Shares of LANES invocations, APART of which lie between two of them, become one: `combine_shares` of those at the same place
// in both halves, again and again. Halves in different subgroups meet in workgroup memory, eight shares at a time, the others
// by shuffles. Invocations of a subgroup lie side by side, SUBGROUP of them. ACROSS: there are more.
const SUBGROUP: u32 = 32u;
const APART: u32 = 1u;
const ALL: u32 = LANES * APART;
const CLOSE: u32 = max(SUBGROUP, APART);

//#if !MOVED
// The share of the invocation `by` places after this one.
fn moved(share: Share, by: u32) -> Share { return subgroupShuffleDown(share, by); }

//#endif
//#if ACROSS
var<workgroup> shares: array<Share, WG>;

fn combine_2(at: u32, by: u32) -> Share { return combine_shares(shares[at], shares[at + by]); }
fn combine_4(at: u32, by: u32) -> Share { return combine_shares(combine_2(at, 2u * by), combine_2(at + by, 2u * by)); }
fn combine_8(at: u32, by: u32) -> Share { return combine_shares(combine_4(at, 2u * by), combine_4(at + by, 2u * by)); }

//#endif
// The share of all, known to the first APART of them.
fn reduced_lanes(own: Share, place: u32) -> Share {
  var met = own;
//#if ACROSS
  shares[place] = own;
  workgroupBarrier();
  let lane = place % ALL;
  var wide = ALL;
  for (; wide > 8u * CLOSE; wide /= 8u) {
    if (lane < wide / 8u) { shares[place] = combine_8(place, wide / 8u); }
    workgroupBarrier();
  }
  if (lane < CLOSE) {
    if (wide == 8u * CLOSE) {
      met = combine_8(place, CLOSE);
    } else if (wide == 4u * CLOSE) {
      met = combine_4(place, CLOSE);
    } else {
      met = combine_2(place, CLOSE);
    }
  }
//#endif
  for (var width = min(ALL, CLOSE) / 2u; width >= APART; width >>= 1u) {
    met = combine_shares(met, moved(met, width));
  }
  return met;
}

//#if !MOVED
// The same, known to each of them. A second time only after a barrier.
fn reduced_for_all(own: Share, place: u32) -> Share {
  let met = reduced_lanes(own, place);
  let lane = place % ALL;
//#if ACROSS
  if (lane == 0u) { shares[place] = met; }
  workgroupBarrier();
  return shares[place - lane];
//#else
  return subgroupShuffle(met, (place - lane) % SUBGROUP);
//#endif
}
//#endif
