// SPDX-License-Identifier: Apache-2.0

package kvstore

import "context"

// ListPage is the usual number of keys in a page of ListAll.
const ListPage = 5000

// ListAll reads [key, end) in pages, every page at one revision: rev, or for 0
// the head that the first page saw. It returns the keys in ascending order and
// that revision; a watch from it + 1 on misses nothing. page 0 is ListPage.
// ErrCompacted says that compaction overtook the list: start again.
func ListAll(ctx context.Context, s Store, key, end string, rev, page int64) (kvs []KV, at int64, err error) {
	if page <= 0 {
		page = ListPage
	}
	r := RangeRequest{Key: key, RangeEnd: end, Revision: rev, Limit: page}
	for {
		got, err := s.Range(ctx, r)
		if err != nil {
			return nil, 0, err
		}
		if r.Revision == 0 {
			r.Revision = got.Revision
		}
		kvs = append(kvs, got.KVs...)
		if !got.More || len(got.KVs) == 0 {
			return kvs, r.Revision, nil
		}
		r.Key = got.KVs[len(got.KVs)-1].Key + "\x00"
	}
}
