// SPDX-License-Identifier: Apache-2.0

package sim

import "time"

// lane is a queue inside a process that keeps its order; after a pause nobody
// knows which lane goes on first.
type lane uint8

const (
	laneTimer lane = iota
	laneElection
	laneMirror
	laneCommit
	laneRequest
	laneKernel
	lanes
)

// process is what crashes, stands still and starts again.
type process struct {
	w      *world
	name   string
	life   int // counts starts; inputs meant for an earlier life are lost
	up     bool
	paused bool
	rate   float64              // how fast its clock runs; 1: as the store's
	queues [lanes][]func()      // inputs that wait
	opens  [lanes]time.Duration // when a lane goes on after a pause
}

// clock is the process's own monotonic clock.
func (p *process) clock() time.Duration { return time.Duration(float64(p.w.now) * p.rate) }

// world is how long d of the process's clock takes.
func (p *process) world(d time.Duration) time.Duration { return time.Duration(float64(d)/p.rate) + 1 }

// deliver runs f in the process now, or once it moves again and everything
// before it in its lane has run; never in another life.
func (p *process) deliver(life int, l lane, f func()) {
	if p.up && p.life == life {
		p.queues[l] = append(p.queues[l], f)
		p.drain(l)
	}
}

func (p *process) drain(l lane) {
	for len(p.queues[l]) > 0 && !p.paused && p.w.now >= p.opens[l] {
		f := p.queues[l][0]
		p.queues[l] = p.queues[l][1:]
		f()
	}
}

// later is deliver after d of the world's time, in the present life.
func (p *process) later(d time.Duration, l lane, f func()) {
	life := p.life
	p.w.in(d, func() { p.deliver(life, l, f) })
}

// pause stops the process for d, as SIGSTOP does: its clock goes on.
func (p *process) pause(d time.Duration) {
	if !p.up || p.paused {
		return
	}
	p.w.log(p.name, "stands still for %v", d)
	p.paused = true
	life := p.life
	p.w.in(d, func() {
		if p.life == life && p.up {
			p.resume()
		}
	})
}

// resume lets what piled up in, each lane in its order.
func (p *process) resume() {
	p.w.log(p.name, "moves again")
	p.paused = false
	life := p.life
	for l := range lanes {
		d := p.w.between(0, 15*time.Millisecond)
		p.opens[l] = p.w.now + d
		p.w.in(d, func() {
			if p.life == life {
				p.drain(l)
			}
		})
	}
}

// stop ends the process with all it knows.
func (p *process) stop() {
	p.w.log(p.name, "crashes")
	p.up, p.paused, p.queues, p.opens = false, false, [lanes][]func(){}, [lanes]time.Duration{}
}
