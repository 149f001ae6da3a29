// Creates a pod, prints its address, and deletes it: docs/reference/api.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/grpc"
	podnet "podnet/v1"
)

func main() {
	connection, err := grpc.Dial("unix:"+os.Getenv("PODNET_SOCKET"), grpc.WithInsecure())
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	pods := podnet.NewPodServiceClient(connection)
	limit, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	spec := &podnet.PodSpec{Name: "web", Labels: map[string]string{"app": "shop"}}
	made, err := pods.Create(limit, &podnet.CreatePodRequest{Spec: spec})
	if err != nil {
		log.Fatal(err)
	}
	for _, each := range made.Pod.Interfaces {
		fmt.Println(made.Pod.Name, each.Addresses)
	}
	if _, err := pods.Delete(limit, &podnet.DeletePodRequest{IdOrName: made.Pod.Id}); err != nil {
		log.Fatal(err)
	}
}
